"""The stages that make labels: evidence in, one file of labels and one of states out.

Which labeler, which files and when are the workflow's business; what a label says is the labeler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from neuroscope.autointerp.calls.ask import Ask, Client, Key
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.records import Tally
from neuroscope.autointerp.calls.session import Terms, ask_all
from neuroscope.autointerp.evidence import PoolSide
from neuroscope.autointerp.labeler import Labeler, LabelResult
from neuroscope.autointerp.outcome import LabelCounts, Made
from neuroscope.autointerp.prompt import MAX_TOKENS, RESPONSE_SCHEMA, build_label_prompt, read_answer, refusal
from neuroscope.autointerp.requests import Requests
from neuroscope.autointerp.tokens import TokensLabeler
from neuroscope.autointerp.words import TokenText, Vocabulary

PURPOSE = "label"
MIN_EXAMPLES = 3
"""With fewer, a language model would describe texts and not a feature."""


def label_features(
    *,
    examples: Path,
    pool: Path,
    tokens: TokenText,
    out: Path,
    states: Path | None = None,
    logits: Path | None = None,
    stats: Path | None = None,
    per_feature: int = 20,
    sampled: int = 5,
    labeler: Labeler | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Callable[[list[int]], Iterable[int]] = iter,
) -> LabelCounts:
    """Names every feature that has examples by a labeler that answers at once, by default the rules of `tokens`.

    `tokens` gives the text of a token id. `progress` wraps the features gone over, as tqdm does.
    Raises ArtefactError when a file is missing or not what the sweep writes.
    """
    requests = Requests(
        examples=examples,
        tokens=tokens,
        logits=logits,
        stats=stats,
        per_feature=per_feature,
        sampled=sampled,
    )
    labeler = labeler or TokensLabeler(PoolSide.read(pool, labelling=True), Vocabulary(tokens))
    created = now().isoformat(timespec="seconds")
    results = ((labeler.label(requests.of(feature)), created) for feature in progress(requests.features))
    made = Made(labeler.source, labeler.model, labeler.method, results, requests.silent)
    return made.write(out, states)


class LabelAsks:
    """The prompts of all features that have enough examples, built as they are gone over and not held."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self.features = [f for f in requests.features if len(requests.of(f).top) >= MIN_EXAMPLES]
        self.keys: dict[int, Key] = {}
        """Of the features that were gone over."""

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Ask]:
        for feature in self.features:
            prompt = build_label_prompt(self._requests.of(feature))
            ask = Ask(
                feature,
                PURPOSE,
                prompt.system,
                prompt.user,
                RESPONSE_SCHEMA,
                MAX_TOKENS,
                prompt.content_hash,
            )
            self.keys[feature] = ask.key
            yield ask


def ask_for_labels(
    requests: Requests,
    client: Client,
    terms: Terms,
    *,
    source: str,
    ledger: Path,
    out: Path,
    states: Path,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> LabelCounts:
    """Names every feature that has enough examples by a language model.

    What is written follows from the ledger and the evidence alone. Raises StopRun when the run stopped early; then
    nothing is written and the ledger keeps every answer.
    """
    asks = LabelAsks(requests)
    ask_all(
        asks,
        client,
        ledger,
        terms,
        purpose=PURPOSE,
        check=lambda key, text: refusal(text),
        accepted="labelled",
        progress=progress,
    )
    few = dict.fromkeys(set(requests.features) - set(asks.features), "insufficient")
    results = _answers(requests, asks.keys, client.model, Ledger(ledger))
    return Made(
        source, client.model, "examples shown to a language model", results, requests.silent | few
    ).write(out, states)


def _answers(
    requests: Requests, keys: dict[int, Key], model: str, ledger: Ledger
) -> Iterator[tuple[LabelResult, str | None]]:
    for feature, key in keys.items():
        call = ledger.of(key, model)[-1]
        if call.state == "labelled":
            yield read_answer(requests.of(feature), call.text or ""), call.at
        else:
            yield LabelResult(feature, call.state, pattern=call.reason), call.at  # type: ignore[arg-type]
