"""Scores of labels: does a label tell where its feature fires from where it does not?

Detection asks of a window whether it holds what the label says, fuzzing of a marked token whether it is what the
label says. A label with a rule is judged by the rule alone, which sees the words of a window and no activation; a
label in words by a language model, which sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from neuroscope.autointerp.accuracy import Confusion, balanced_accuracy
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.evidence import CENTRE, read_columns, scan
from neuroscope.autointerp.judging import Judge, Questions
from neuroscope.autointerp.rules import Rule, hits, marks
from neuroscope.autointerp.score_rows import (
    BY_MODEL,
    BY_RULE,
    SCHEMA,
    FeatureScore,
    Verdicts,
    detection_scores,
    fuzzing_score,
)
from neuroscope.autointerp.trials import Numbers, Trial, Trials
from neuroscope.autointerp.words import TokenText, Vocabulary, Words
from neuroscope.sources import replace_atomically

METHODS = ("detection", "fuzzing")


@dataclass(frozen=True, slots=True)
class Named:
    """A label that is to be scored."""

    source: str
    text: str
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """What came of scoring."""

    scored: int
    failed: int
    """Labels with too few held-out windows, too few windows without their feature, or too few verdicts."""
    without_judge: int
    """Labels in words, when no language model is there to judge them."""
    mean: float | None
    """Mean balanced accuracy of the scored labels."""
    shuffled: float | None
    """The same when every rule is judged on another feature's windows: a half, if windows do not give it away."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How labels are scored."""

    numbers: Numbers = field(default_factory=Numbers)
    methods: Sequence[str] = ("detection",)
    windows_per_call: int | None = None
    """None: all of a feature's."""
    seed: int = 0


def judge(rule: Rule, positives: Words, negatives: Words) -> Confusion:
    """The rule's verdicts on windows with the feature and windows without it."""
    verdicts = [*hits(rule, positives).tolist(), *hits(rule, negatives).tolist()]
    return Confusion.count([True] * len(positives) + [False] * len(negatives), verdicts)


def verdicts_of_rule(rule: Rule, *windows: Words) -> Verdicts:
    """The rule's verdict on each window, of detection."""
    return np.concatenate([hits(rule, words).astype(np.int8) for words in windows])


def verdicts_on_marks(rule: Rule, *windows: Words) -> Verdicts:
    """The rule's verdict on the token in the middle of each window, of fuzzing."""
    return np.concatenate([marks(rule, words)[:, CENTRE].astype(np.int8) for words in windows])


def score_labels(
    *,
    labels: Sequence[Path],
    examples: Path,
    pool: Path,
    tokens: TokenText,
    out: Path,
    neighbours: Path | None = None,
    how: Scoring | None = None,
    judge: Judge | None = None,
    progress: Callable[[list[int]], Iterable[int]] = iter,
) -> ScoreCounts:
    """Scores labels and writes `out` (scores.parquet): those with a rule by it, those in words by `judge`.

    `labels` are files of labels; `tokens` gives the text of a token id; `progress` wraps the features gone over, as
    tqdm does. Raises StopRun when `judge` stopped early: then nothing is written, and its ledger keeps every answer.
    """
    named, how = read_named(labels), how or Scoring()
    trials = Trials(
        examples, pool, Vocabulary(tokens), numbers=how.numbers, neighbours=neighbours, seed=how.seed
    )
    by_rule, shuffled = _by_rule(named, trials, how, progress)
    by_model = [] if judge is None else list(_by_model(named, trials, how, judge))
    rows = sorted([*by_rule, *by_model], key=lambda row: (row.feature, row.source, row.method))
    frame = pl.DataFrame([asdict(row) for row in rows], schema=SCHEMA)
    with replace_atomically(out) as temporary:
        frame.write_parquet(temporary)
    first = frame.unique(["feature", "source"], keep="first", maintain_order=True)["balanced_accuracy"]
    known = first.drop_nulls().to_list()
    without = sum(map(len, in_words(named).values())) if judge is None else 0
    return ScoreCounts(len(known), len(first) - len(known), without, _mean(known), _mean(shuffled))


def in_words(named: Mapping[int, Sequence[Named]]) -> dict[int, list[str]]:
    """The labels of each feature that have no rule."""
    texts = {f: [label.text for label in labels if label.rule is None] for f, labels in named.items()}
    return {feature: found for feature, found in texts.items() if found}


def questions(named: Mapping[int, Sequence[Named]], trials: Trials, how: Scoring) -> Questions:
    """What a language model is asked about the labels in words."""
    return Questions(
        in_words(named),
        trials,
        methods=how.methods,
        windows_per_call=how.windows_per_call,
        seed=how.seed,
    )


def _by_rule(
    named: Mapping[int, Sequence[Named]],
    trials: Trials,
    how: Scoring,
    progress: Callable[[list[int]], Iterable[int]],
) -> tuple[list[FeatureScore], list[float]]:
    """The scores of labels with a rule; and what each rule scores on the next feature's windows."""
    rows, shuffled = list[FeatureScore](), list[float]()
    stranger: Rule | None = None
    for feature in progress(sorted(f for f, labels in named.items() if any(label.rule for label in labels))):
        trial = trials.of(feature)
        if stranger is not None and trial.enough:
            control = balanced_accuracy(judge(stranger, trial.positives, trial.negatives))
            shuffled.extend([] if control is None else [control.balanced_accuracy])
        for label in named[feature]:
            if label.rule is not None:
                rows.extend(score_rule(feature, label.source, label.rule, trials, how.methods, trial))
                stranger = label.rule
    return rows, shuffled


def score_rule(
    feature: int,
    source: str,
    rule: Rule,
    trials: Trials,
    methods: Sequence[str] = ("detection",),
    trial: Trial | None = None,
) -> list[FeatureScore]:
    """The scores of one label with a rule; `trial` is the feature's, where it is at hand."""
    rows = list[FeatureScore]()
    if "detection" in methods:
        trial = trial or trials.of(feature)
        found = verdicts_of_rule(rule, trial.positives, trial.negatives, trial.near_misses)
        rows += detection_scores(feature, source, BY_RULE, trial, found)
    if "fuzzing" in methods:
        marked = trials.marked(feature)
        found = verdicts_on_marks(rule, marked.right, marked.wrong)
        rows.append(fuzzing_score(feature, source, BY_RULE, marked, found))
    return rows


def _by_model(
    named: Mapping[int, Sequence[Named]], trials: Trials, how: Scoring, judge: Judge
) -> Iterator[FeatureScore]:
    """The scores of labels in words."""
    asked = questions(named, trials, how)
    judge.ask(asked)
    ledger, model = Ledger(judge.ledger), judge.client.model
    for feature in sorted(named):
        for label in named[feature]:
            if label.rule is not None:
                continue
            for method in how.methods:
                found = asked.verdicts(feature, label.text, method, ledger, model)
                if method == "fuzzing":
                    marked = trials.marked(feature)
                    yield fuzzing_score(feature, label.source, BY_MODEL, marked, found)
                else:
                    trial = trials.of(feature)
                    yield from detection_scores(feature, label.source, BY_MODEL, trial, found)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def read_named(labels: Sequence[Path]) -> dict[int, list[Named]]:
    """The labels of each feature, one of each source: its first, which is the one that is shown.

    Raises LabelError for one whose rule is none.
    """
    named: dict[int, list[Named]] = {}
    for path in labels:
        has_rule = "rule" in scan(path)[1]
        frame = read_columns(path, ("feature", "source", "label", *(["rule"] if has_rule else [])))
        if not has_rule:
            frame = frame.with_columns(rule=pl.lit(None, pl.String))
        for feature, source, text, rule in frame.collect().iter_rows():
            read, known = None if rule is None else Rule.from_json(rule), named.setdefault(feature, [])
            if all(label.source != source for label in known):
                known.append(Named(source, text, read))
    return named
