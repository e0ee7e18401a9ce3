"""What a labeler leaves: the labels that it found, and for every feature the state that it ended in.

Which labeler it was is not known here. No feature is missing from the states, so none disappears without a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from neuroscope.autointerp.labeler import LabelResult
from neuroscope.errors import ArtefactError
from neuroscope.labels import CONFIDENCES, STATES_SCHEMA, Label, LabelSet, plain, read_labels
from neuroscope.sources import replace_atomically

REASONS = {
    "dead": "never active in the corpus",
    "insufficient": "too few examples",
    "refused": "the model declined to answer",
    "truncated": "the answer was cut at its token limit",
}
"""Why there is no label, where the labeler does not say more."""


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """What came of a run over all features."""

    labelled: int
    without_label: int
    """Features without examples (dead in the corpus), or that the labeler could not name."""
    by_confidence: dict[str, int]
    by_state: dict[str, int]

    def __str__(self) -> str:
        """In a line: labels by confidence, the others by state."""
        sure = ", ".join(f"{number} {level}" for level, number in self.by_confidence.items())
        others = ", ".join(
            f"{number} {state}" for state, number in self.by_state.items() if state != "labelled"
        )
        rest = f" ({others})" if others else ""
        return f"{self.labelled} features labelled ({sure}), {self.without_label} without a label{rest}"


@dataclass(frozen=True, slots=True)
class Made:
    """A labeler's results and who made them."""

    source: str
    model: str | None
    method: str
    results: Iterable[tuple[LabelResult, str | None]]
    """Each with the time of its making."""
    silent: Mapping[int, str]
    """State of the features that were not looked at."""

    def write(self, out: Path, states: Path | None = None) -> LabelCounts:
        """Writes labels/<source>.parquet and the states beside it.

        Columns: those of `labels.SCHEMA`, and `rule` (JSON, see `rules`) and `pattern`; of the states, STATES_SCHEMA.
        A label that `out` holds already keeps its time: the same evidence gives the same bytes.
        """
        earlier = _labels_in(out)
        labels, extra = list[Label](), {"rule": list[str | None](), "pattern": list[str | None]()}
        rows = [(feature, self.source, state, REASONS.get(state)) for feature, state in self.silent.items()]
        for result, made_at in self.results:
            rows.append((result.feature, self.source, result.state, _reason(result)))
            if result.label is not None:
                who = (self.model, self.method, made_at)
                label = Label(result.feature, self.source, result.label, result.confidence, *who)
                before = earlier.get(result.feature)
                labels.append(before if before and replace(before, created_at=made_at) == label else label)
                extra["rule"].append(result.rule)
                extra["pattern"].append(None if result.pattern is None else plain(result.pattern))
        LabelSet(tuple(labels)).to_parquet(out, extra)
        frame = pl.DataFrame(sorted(rows), schema=STATES_SCHEMA, orient="row")
        if states is not None:
            with replace_atomically(states) as temporary:
                frame.write_parquet(temporary)
        levels = Counter(label.confidence for label in labels)
        counts = Counter(frame["state"].to_list())
        return LabelCounts(
            len(labels),
            len(rows) - len(labels),
            {level: levels[level] for level in CONFIDENCES},
            dict(counts.most_common()),
        )


def _labels_in(out: Path) -> dict[int, Label]:
    """Feature -> the label that an earlier run gave it; none where there was no run, or its file is damaged."""
    try:
        return read_labels(out).by_feature
    except ArtefactError:
        return {}


def _reason(result: LabelResult) -> str | None:
    if result.state == "labelled":
        return ", ".join(result.flags) or None
    return plain(result.pattern) if result.pattern else REASONS.get(result.state)
