"""The stages whose labels are not this project's own: a language model's, and those of a file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from neuroscope.autointerp.calls.ask import Client
from neuroscope.autointerp.calls.chat_completions import ChatCompletions
from neuroscope.autointerp.calls.estimate import estimate
from neuroscope.autointerp.calls.ledger import MAX_FAILED, Ledger
from neuroscope.autointerp.calls.prices import price_of
from neuroscope.autointerp.calls.records import Tally
from neuroscope.autointerp.calls.session import Terms
from neuroscope.autointerp.own import take_own_labels
from neuroscope.autointerp.pipeline import LabelAsks, ask_for_labels
from neuroscope.autointerp.requests import Requests
from neuroscope.errors import LabelError
from neuroscope.settings import Settings
from neuroscope.stages.labels import token_text

log = logging.getLogger(__name__)

LEDGER = "ledger.jsonl"
"""Beside the labels; the only file here that cannot be made again for nothing."""
ANSWER_TOKENS = 110
"""Of a pattern, a label and a confidence, for estimates."""


def ask_labels(
    settings: Settings, *, examples: Path, stats: Path, logits: Path, output: Path, states: Path
) -> None:
    """A label from a language model for every feature with enough examples. Raises LabelError without a key."""
    how = terms(settings)
    with closing(client_of(settings)) as client:
        requests = _requests(settings, examples, stats, logits)
        with Bar("labels", "feature", len(LabelAsks(requests)), "labelled") as bar:
            counts = ask_for_labels(
                requests,
                client,
                how,
                source=settings.labels.source,
                ledger=output.with_name(LEDGER),
                out=output,
                states=states,
                progress=bar,
            )
    log.info("%s, $%.2f", counts, bar.spent)
    if counts.by_state.get("failed"):
        log.warning(
            "%d features got no answer. Each is asked in up to %d runs: snakemake --cores 1 --forcerun %s -- labels",
            counts.by_state["failed"],
            MAX_FAILED,
            settings.labels.source,
        )


def take_labels(settings: Settings, *, stats: Path, output: Path, states: Path) -> None:
    """The labels of the file that the settings name."""
    path = settings.labels.file
    if path is None:
        raise LabelError("labels.file is not set. Set it to a .json, .csv or .parquet of labels.")
    log.info("%s", take_own_labels(Path(path), stats=stats, out=output, states=states))


def estimate_labels(settings: Settings) -> dict[str, Any]:
    """What `ask_labels` would ask and pay for now. Nothing is paid; raises LabelError when there is no evidence yet."""
    labels, results = settings.labels, settings.results
    if labels.source in ("tokens", "file"):
        return {"labeler": labels.labeler, "calls": 0, "usd": 0.0}
    files = [results / f"{name}.parquet" for name in ("examples", "stats", "logits")]
    if missing := [path.name for path in files if not path.is_file()]:
        raise LabelError(
            f"{results} lacks {', '.join(missing)}, from which prompts are made. Make them, which costs nothing but "
            f"time: NEUROSCOPE_PAIRING={settings.pairing.name} snakemake --cores all -- examples logits"
        )
    how = terms(settings)
    with ExitStack() as stack:
        client: Client | None = None
        with suppress(LabelError):  # without a key, tokens are estimated
            client = stack.enter_context(closing(client_of(settings)))
        found = estimate(
            LabelAsks(_requests(settings, *files)),
            client,
            Ledger(results / "labels" / LEDGER),
            model=model_of(settings),
            price=how.price,
            output_tokens=ANSWER_TOKENS,
            concurrency=how.concurrency,
        )
    return {"model": model_of(settings), **asdict(found), "max_cost_usd": how.max_cost_usd}


def terms(settings: Settings, who: str | None = None) -> Terms:
    """How the settings want a language model to be asked, and what that may cost. `who` is as for `client_of`."""
    labels, model = settings.labels, model_of(settings, who)
    given = labels.prices
    known = (
        who or labels.source
    ) != "openai" and labels.model is not None  # then the prices are that model's
    price = price_of(model) if known else price_of(model, given.input, given.output)
    return Terms(price, labels.max_cost_usd, labels.concurrency, labels.batch)


def client_of(settings: Settings, who: str | None = None) -> Client:
    """The service of `who`: openai, or a Claude model; by default of the labeler.

    Another service is a file in `autointerp/calls` and an entry here.
    """
    source = "openai" if (who or settings.labels.source) == "openai" else "claude"
    return _CLIENTS[source](settings, model_of(settings, who))


def model_of(settings: Settings, who: str | None = None) -> str:
    """The name of the model, as its service knows it. `who` is as for `client_of`."""
    if (who or settings.labels.source) == "openai":
        return str(settings.labels.model)
    return who or settings.labels.labeler


def _claude(settings: Settings, model: str) -> Client:
    from neuroscope.autointerp.calls.claude import Claude  # the SDK takes a second to import

    return Claude(model)


def _openai(settings: Settings, model: str) -> Client:
    labels = settings.labels
    return ChatCompletions(model, str(labels.base_url), key_variable=labels.api_key_env)


_CLIENTS: dict[str, Callable[[Settings, str], Client]] = {"claude": _claude, "openai": _openai}


def _requests(settings: Settings, examples: Path, stats: Path, logits: Path) -> Requests:
    return Requests(
        examples=examples,
        tokens=token_text(settings),
        logits=logits,
        stats=stats,
        per_feature=settings.labels.examples_per_feature,
        sampled=settings.examples.sampled,
    )


class Bar:
    """A progress bar of asks: done, without a good answer, dollars spent, time left."""

    def __init__(self, title: str, unit: str, total: int | None, accepted: str) -> None:
        self._bar = tqdm(total=total, desc=title, unit=unit, mininterval=1)
        self._accepted, self.spent = accepted, 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def __call__(self, tally: Tally) -> None:
        self.spent = tally.spent
        failed = tally.ended - tally.states[self._accepted]
        self._bar.set_postfix_str(f"{failed} without an answer, ${tally.spent:.2f}", refresh=False)
        self._bar.update(tally.ended - self._bar.n)
