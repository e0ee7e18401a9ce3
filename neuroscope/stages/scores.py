"""The stage that scores labels, and the same for labels that somebody else made."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope.autointerp.calls.ask import Client
from neuroscope.autointerp.calls.estimate import estimate
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.evidence import read_columns, read_firing_rates
from neuroscope.autointerp.judging import JUDGED, Judge
from neuroscope.autointerp.score_rows import SCHEMA, add_scores
from neuroscope.autointerp.scoring import Named, Scoring, in_words, questions, read_named, score_labels
from neuroscope.autointerp.summary import summarise
from neuroscope.autointerp.trials import Numbers, Trials
from neuroscope.autointerp.words import Vocabulary
from neuroscope.errors import ArtefactError, LabelError
from neuroscope.labels import PRIORITY, LabelSet, read_labels
from neuroscope.settings import Settings
from neuroscope.stages.asking import Bar, client_of, model_of, terms
from neuroscope.stages.labels import bar, token_text

log = logging.getLogger(__name__)

LEDGER = "scores.ledger.jsonl"
"""Beside the labels; the verdicts of a language model, which cannot be made again for nothing."""
LABEL_CHARACTERS = 60
"""Of a label that is not there yet."""
FIGURES = ("calls", "input_tokens", "output_tokens", "usd", "usd_batch", "seconds")


def make_scores(
    settings: Settings,
    *,
    labels: Sequence[Path],
    examples: Path,
    pool: Path,
    neighbours: Path,
    output: Path,
    kept: Sequence[Path] = (),
    ledger: Path | None = None,
) -> None:
    """The scores of every label that can be judged: by its rule, or in words by the language model of the settings.

    `kept` are labels of earlier labelers, for the language model too. Labels in the results that nobody judges now keep
    the scores that they have in `output`.
    """
    if settings.labels.judge is not None:
        labels = [*labels, *kept]
    judged = {path.stem for path in labels}
    earlier = _scores_of([path.stem for path in label_files(settings) if path.stem not in judged], output)
    with _judge(settings, labels, ledger or output.parent / "labels" / LEDGER) as judge:
        counts = score_labels(
            labels=labels,
            examples=examples,
            pool=pool,
            neighbours=neighbours,
            tokens=token_text(settings),
            out=output,
            how=scoring(settings),
            judge=judge,
            progress=bar("scores", "feature"),
        )
    if len(earlier):
        add_scores(output, earlier)
        log.info("%d earlier scores kept, of %s", len(earlier), ", ".join(earlier["source"].unique().sort()))
    log.info(
        "%d labels scored, mean balanced accuracy %s (rules of other features: %s); %d with too few verdicts",
        counts.scored,
        _figure(counts.mean),
        _figure(counts.shuffled),
        counts.failed,
    )
    if counts.without_judge:
        log.warning(
            "%d labels in words have no score: set labels.scorer to a language model that judges them.",
            counts.without_judge,
        )


def _scores_of(sources: Sequence[str], scores: Path) -> pl.DataFrame:
    """The rows of a file of scores that are about these sources; none where there is no such file."""
    try:
        found = read_columns(scores, tuple(SCHEMA)).collect()
    except ArtefactError:
        return pl.DataFrame(schema=SCHEMA)
    return found.filter(pl.col("source").is_in(sources))


def scoring(settings: Settings) -> Scoring:
    """How the settings want labels to be scored."""
    labels = settings.labels
    return Scoring(
        Numbers(settings.examples.held_out, labels.negatives, labels.near_misses),
        labels.score_methods,
        labels.windows_per_call,
        seed=settings.corpus.seed,
    )


@contextmanager
def _judge(settings: Settings, labels: Sequence[Path], ledger: Path) -> Iterator[Judge | None]:
    """The language model that judges, when the settings name one and there are labels in words."""
    who, asked = settings.labels.judge, in_words(read_named(labels))
    if who is None or not asked:
        yield None
        return
    per_label = None if settings.labels.windows_per_call else len(settings.labels.score_methods)
    total = None if per_label is None else per_label * sum(map(len, asked.values()))
    with (
        closing(client_of(settings, who)) as client,
        Bar(f"verdicts of {client.model}", "call", total, JUDGED) as progress,
    ):
        yield Judge(client, terms(settings, who), ledger, progress)
    log.info("judged by %s for $%.2f", client.model, progress.spent)


def label_files(settings: Settings) -> list[Path]:
    """The files of labels there are: of the labeler, those of earlier ones or imported, and those that stand in."""
    paths = (settings.results / "labels" / f"{source}.parquet" for source in PRIORITY)
    return [path for path in paths if path.is_file()]


def score_figures(settings: Settings) -> list[dict[str, Any]]:
    """The scores there are, by source and method."""
    each = (label for found in read_named(label_files(settings)).values() for label in found)
    labels = Counter(label.source for label in each)
    return summarise(settings.results / "scores.parquet", labels, settings.labels.min_score)


def estimate_scores(settings: Settings, path: Path | None = None) -> dict[str, Any]:
    """What scoring the labels there are, or those of `path`, would ask and pay for now. Nothing is paid."""
    with tempfile.TemporaryDirectory(prefix="neuroscope-") as folder:
        files = label_files(settings) if path is None else [_with_rules(settings, path, Path(folder))]
        named = read_named(files)
    asked = sum(map(len, in_words(named).values()))
    counts = {"by_rule": sum(map(len, named.values())) - asked, "in_words": asked}
    if settings.labels.judge is None or not asked:
        return {"scorer": settings.labels.judge or "none", **counts, "calls": 0, "usd": 0.0}
    return {"scorer": model_of(settings, settings.labels.judge), **counts, **_estimate(settings, named)}


def estimate_scores_to_come(settings: Settings) -> dict[str, Any]:
    """The same for the labels that the labeler has yet to make; empty where nobody would be asked about them."""
    labels = settings.labels
    if not labels.score or labels.judge is None or labels.source == "tokens":
        return {}
    examples = read_columns(_evidence(settings)[0], ("feature",)).unique().collect()["feature"]
    stand_in = Named(labels.source, "x" * LABEL_CHARACTERS, None)
    found = _estimate(settings, {feature: [stand_in] for feature in examples.to_list()})
    return {"scorer": model_of(settings, labels.judge)} | {f"scores_{key}": found[key] for key in FIGURES}


def _estimate(settings: Settings, named: Mapping[int, Sequence[Named]]) -> dict[str, Any]:
    who, how = settings.labels.judge, scoring(settings)
    examples, pool, neighbours = _evidence(settings)
    vocabulary = Vocabulary(token_text(settings))
    trials = Trials(examples, pool, vocabulary, numbers=how.numbers, neighbours=neighbours, seed=how.seed)
    asked, on = questions(named, trials, how), terms(settings, who)
    with ExitStack() as stack:
        client: Client | None = None
        with suppress(LabelError):  # without a key, tokens are estimated
            client = stack.enter_context(closing(client_of(settings, who)))
        found = estimate(
            asked,
            client,
            Ledger(settings.results / "labels" / LEDGER),
            model=model_of(settings, who),
            price=on.price,
            output_tokens=asked.answer_tokens(),
            concurrency=on.concurrency,
        )
    return {**asdict(found), "max_cost_usd": on.max_cost_usd}


def score_file(settings: Settings, path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The scores of the labels of a file: in figures by method, and label by label.

    A label that says what the results' own rule says is judged by that rule, any other by a language model. Raises
    LabelError when nobody can judge any of them.
    """
    examples, pool, neighbours = _evidence(settings)
    with tempfile.TemporaryDirectory(prefix="neuroscope-") as folder:
        labels, scores = _with_rules(settings, path, Path(folder)), Path(folder) / "scores.parquet"
        named = read_named([labels])
        each = [label for found in named.values() for label in found]
        if each and settings.labels.judge is None and all(label.rule is None for label in each):
            raise LabelError(
                f"{path} has labels in words, which only a language model can judge. Name one with --scorer "
                "(labels.scorer)."
            )
        make_scores(
            settings,
            labels=[labels],
            examples=examples,
            pool=pool,
            neighbours=neighbours,
            output=scores,
            ledger=settings.results / "labels" / LEDGER,
        )
        text = pl.read_parquet(labels).select("feature", "label", "source")
        rows = text.join(pl.read_parquet(scores), on=["feature", "source"], how="left", maintain_order="left")
        figures = summarise(scores, Counter(label.source for label in each), settings.labels.min_score)
    return figures, list(rows.iter_rows(named=True))


def _evidence(settings: Settings) -> tuple[Path, Path, Path]:
    examples, pool, neighbours = (
        settings.results / f"{name}.parquet" for name in ("examples", "pool", "neighbours")
    )
    if missing := [path.name for path in (examples, pool, neighbours) if not path.is_file()]:
        raise LabelError(
            f"{settings.results} lacks {', '.join(missing)}, with which labels are judged. Make them: "
            f"NEUROSCOPE_PAIRING={settings.pairing.name} snakemake --cores all -- examples"
        )
    return examples, pool, neighbours


def _with_rules(settings: Settings, path: Path, folder: Path) -> Path:
    """The labels of `path` as a file of this project, each with the rule that the same words have in the results."""
    found = read_labels(path).labels
    rates = read_firing_rates(settings.results / "stats.parquet")
    if beyond := [label.feature for label in found if label.feature not in rates]:
        raise ArtefactError(
            f"{path} names feature {beyond[0]}; this SAE has features 0 to {len(rates) - 1}. Choose the pairing that "
            "the labels belong to with --pairing."
        )
    rules = {
        (feature, label.text): label.rule.to_json()
        for feature, labels in read_named(label_files(settings)).items()
        for label in labels
        if label.rule is not None
    }
    out = folder / "labels.parquet"
    LabelSet(found).to_parquet(out, {"rule": [rules.get((label.feature, label.label)) for label in found]})
    return out


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
