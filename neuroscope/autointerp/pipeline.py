"""The stage that makes labels: evidence in, one labels file out.

Which labeler, which files and when are the workflow's business; what a label says is the labeler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from neuroscope.autointerp.evidence import (
    ExampleTable,
    PoolSide,
    held_out_documents,
    read_firing_rates,
    read_logits,
)
from neuroscope.autointerp.labeler import Labeler, LabelRequest
from neuroscope.autointerp.tokens import TokensLabeler
from neuroscope.autointerp.words import TokenText, Vocabulary
from neuroscope.errors import ArtefactError
from neuroscope.labels import Label, LabelSet, read_labels


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """What came of a run over all features."""

    labelled: int
    without_label: int
    """Features without examples (dead in the corpus), or that the labeler could not name."""
    by_confidence: dict[str, int]


def label_features(
    *,
    examples: Path,
    pool: Path,
    tokens: TokenText,
    out: Path,
    logits: Path | None = None,
    stats: Path | None = None,
    per_feature: int = 20,
    sampled: int = 5,
    labeler: Labeler | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Callable[[list[int]], Iterable[int]] = iter,
) -> LabelCounts:
    """Names every feature that has examples and writes `out` (labels/<source>.parquet).

    `tokens` gives the text of a token id. `labeler` is the rules of `tokens` unless given. `progress` wraps the
    features gone over, as tqdm does. Columns: those of `labels.SCHEMA`, and `rule` (JSON, see `rules`) and `pattern`.
    A label that `out` holds already keeps its time: the same evidence gives the same bytes. Raises ArtefactError when
    a file is missing or not what the sweep writes.
    """
    vocabulary = Vocabulary(tokens)
    labeler = labeler or TokensLabeler(PoolSide.read(pool, labelling=True), vocabulary)
    top, sample = (
        ExampleTable.read(examples, "top", per_feature),
        ExampleTable.read(examples, "sample", sampled),
    )
    promoted, rates, unseen = read_logits(logits), read_firing_rates(stats), held_out_documents(examples)
    features = sorted({*top.rows, *sample.rows})
    earlier = _labels_in(out)
    created, labels, rules, seen = (
        now().isoformat(timespec="seconds"),
        list[Label](),
        list[str | None](),
        list[str | None](),
    )
    for feature in progress(features):
        up, down = promoted.get(feature, ((), ()))
        result = labeler.label(
            LabelRequest(
                feature,
                top.of(feature),
                sample.of(feature),
                tokens,
                up,
                down,
                rates.get(feature),
                unseen.get(feature, frozenset()),
            )
        )
        if result.label is None:
            continue
        label = Label(
            feature,
            labeler.source,
            result.label,
            result.confidence,
            labeler.model,
            labeler.method,
            created,
        )
        before = earlier.get(feature)
        labels.append(before if before and replace(before, created_at=created) == label else label)
        rules.append(result.rule)
        seen.append(result.pattern)
    LabelSet(tuple(labels)).to_parquet(out, {"rule": rules, "pattern": seen})
    by_confidence = {
        level: sum(label.confidence == level for label in labels) for level in ("high", "medium", "low")
    }
    return LabelCounts(len(labels), len({*rates, *features}) - len(labels), by_confidence)


def _labels_in(out: Path) -> dict[int, Label]:
    """Feature -> the label that an earlier run gave it; none where there was no run, or its file is damaged."""
    try:
        return read_labels(out).by_feature
    except ArtefactError:
        return {}
