"""What the features stream says about a generation. The wire form stands beside each class.

An event belongs to the token whose own position it describes: the residual of the forward pass that
*consumes* the token, as in max-activating examples and on Neuronpedia.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ActiveFeature:
    """One feature that fired on a token."""

    index: int
    label: str
    activation: float
    surprise: float | None
    """z-score against the firing population; None without calibration or with too few firings."""


@dataclass(frozen=True, slots=True)
class FeatureActivation:
    """The active features of one generated token, after ranking."""

    event: ClassVar[str] = "feature_activation"

    completion_id: str
    token_index: int
    """0 for the first generated token."""
    token: str
    """The text this token adds to the answer; empty inside a character, a matched stop string or at the end of turn."""
    token_id: int
    position: int
    """Position in the model's context, prompt included."""
    layer: int
    l0: int
    """Number of features active on the token, before any filter."""
    fvu: float | None
    """Squared error of the reconstruction by the squared norm of the residual; None when no decoder is loaded."""
    top_features: tuple[ActiveFeature, ...]
    filtered_count: int
    """Features suppressed by the filter that rank above the last one kept."""

    def to_wire(self) -> dict[str, Any]:
        wire = asdict(self)
        wire["top_features"] = [asdict(feature) for feature in self.top_features]
        return wire


@dataclass(frozen=True, slots=True)
class GenerationComplete:
    """The last event of a generation."""

    event: ClassVar[str] = "generation_complete"

    completion_id: str
    model: str
    total_tokens: int
    """Sampled tokens, the end-of-turn token not counted."""
    finish_reason: str
    """stop, length, cancelled or shutdown."""
    degraded: tuple[str, ...] = ()
    """What the server lacks, in words: an empty tuple when stats and labels are those of this pairing."""

    def to_wire(self) -> dict[str, Any]:
        return {**asdict(self), "degraded": list(self.degraded)}


@dataclass(frozen=True, slots=True)
class GenerationError:
    """A generation that failed; the next one works."""

    event: ClassVar[str] = "generation_error"

    completion_id: str
    model: str
    message: str

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


FeatureEvent = FeatureActivation | GenerationComplete | GenerationError
