"""Everything an answer is made with, as one record: what `loading.py` makes and the routes read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuroscope.engine import Engine
    from neuroscope.imported import FiringPrior
    from neuroscope.known import Known, Seen
    from neuroscope.manifest import Fingerprint
    from neuroscope.stats import CalibrationStats
    from neuroscope.store import Results
    from neuroscope.verification import Verification


@dataclass(frozen=True, slots=True)
class Source:
    """Where what is known about the features was read, to read it again."""

    look: Callable[[], Seen]
    """The state of its files."""
    find: Callable[[Known | None], Known]
    """Read them; what is given stays in use where they cannot be."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model, an SAE, and what is known about the SAE's features."""

    model: str
    """The id clients use; `aliases` mean the same model."""
    aliases: frozenset[str]
    pairing: str
    """Its name, which commands in messages need."""
    engine: Engine
    context_length: int
    fingerprint: Fingerprint
    """What results and recordings must have been made with to be about the same features."""
    layer: int
    device: str
    dtype: str
    decoding: str
    """What runs one more token."""
    sae_id: str
    width: int
    labels: tuple[str, ...]
    """One text a feature, `feature_4521` where there is no label."""
    label_sources: dict[str, int]
    """How many labels came from which source."""
    stats: CalibrationStats | FiringPrior | None
    """Measured here, else published firing rates; `source` says which."""
    results: Results | None
    neuronpedia: tuple[str, str] | None
    """Names of model and SAE on Neuronpedia."""
    verification: Verification | None
    """What `neuroscope verify` found about this model and SAE; None when it was not run."""
    degraded: tuple[str, ...]
    """What is missing, why, and which command mends it."""
    known: Known | None = None
    """All that was read about the features: labels, statistics, results, verification and what is degraded are its."""
    source: Source | None = None
    """None where it was not read from files."""

    def with_known(self, known: Known) -> Loaded:
        """The same model and SAE with `known` about its features, whole: nothing of before is mixed in."""
        return replace(
            self,
            labels=known.labels,
            label_sources=known.label_sources,
            stats=known.stats,
            results=known.results,
            verification=known.verification,
            degraded=known.degraded,
            known=known,
        )

    def serves(self, model: str) -> bool:
        return model == self.model or model in self.aliases


Load = Callable[[Callable[[str], None]], Loaded]
"""Loads everything, naming each stage before it begins."""
