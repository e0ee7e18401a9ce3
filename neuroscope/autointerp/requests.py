"""The evidence about every feature of an SAE, as labelers are given it."""

from __future__ import annotations

from pathlib import Path

from neuroscope.autointerp.evidence import (
    ExampleTable,
    held_out_documents,
    read_firing_rates,
    read_logits,
)
from neuroscope.autointerp.labeler import LabelRequest
from neuroscope.autointerp.words import TokenText


class Requests:
    """What the sweep found out about each feature. Raises ArtefactError when a file is missing or another kind."""

    def __init__(
        self,
        *,
        examples: Path,
        tokens: TokenText,
        logits: Path | None = None,
        stats: Path | None = None,
        per_feature: int = 20,
        sampled: int = 5,
    ) -> None:
        self._text = tokens
        self._top = ExampleTable.read(examples, "top", per_feature)
        self._sample = ExampleTable.read(examples, "sample", sampled)
        self._promoted, self._rates = read_logits(logits), read_firing_rates(stats)
        self._unseen = held_out_documents(examples)
        self.features = sorted({*self._top.rows, *self._sample.rows})
        """Features with examples."""
        self.silent = {
            feature: "dead" if rate == 0 else "insufficient"
            for feature, rate in sorted(self._rates.items())
            if feature not in self._top.rows and feature not in self._sample.rows
        }
        """Features without: dead in this corpus, or active in held-out documents only."""

    def of(self, feature: int) -> LabelRequest:
        up, down = self._promoted.get(feature, ((), ()))
        return LabelRequest(
            feature,
            self._top.of(feature),
            self._sample.of(feature),
            self._text,
            up,
            down,
            self._rates.get(feature),
            self._unseen.get(feature, frozenset()),
        )
