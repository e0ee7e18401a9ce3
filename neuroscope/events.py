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
        return _wire_of(self)


@dataclass(frozen=True, slots=True)
class PromptToken:
    """One token that the model was given, after ranking."""

    token: str
    """Its text, control tokens included; empty inside a character."""
    token_id: int
    position: int
    """Position in the model's context."""
    content: bool
    """False for BOS, role headers and turn markers."""
    l0: int | None
    """Number of features active on the token, before any filter; None where there is no such position."""
    fvu: float | None
    top_features: tuple[ActiveFeature, ...]
    filtered_count: int

    def to_wire(self) -> dict[str, Any]:
        return _wire_of(self)


@dataclass(frozen=True, slots=True)
class PromptActivation:
    """Successive tokens of one prompt; sent when they have run, and only when the request asked for them.

    The tokens of all such events of a completion are its prompt as the model reads it.
    """

    event: ClassVar[str] = "prompt_activation"

    completion_id: str
    layer: int
    tokens: tuple[PromptToken, ...]

    def to_wire(self) -> dict[str, Any]:
        tokens = [token.to_wire() for token in self.tokens]
        return {"completion_id": self.completion_id, "layer": self.layer, "tokens": tokens}


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


FeatureEvent = FeatureActivation | PromptActivation | GenerationComplete | GenerationError


def _wire_of(token: FeatureActivation | PromptToken) -> dict[str, Any]:
    """Its fields, and those of its features; `dataclasses.asdict` copies every number, and takes ten times as long."""
    wire = {name: getattr(token, name) for name in token.__slots__}
    wire["top_features"] = [
        {
            "index": feature.index,
            "label": feature.label,
            "activation": feature.activation,
            "surprise": feature.surprise,
        }
        for feature in token.top_features
    ]
    return wire
