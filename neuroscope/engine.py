"""Generation with features: a plain generator over one backend and one SAE. It knows no threads, no HTTP.

The features of a token are those of the forward pass that *consumes* it (its own position), so the loop
samples a token, feeds it, and then yields it; the last token costs one more forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from neuroscope.sae.autoencoder import SparseActs

PREFILL_CELL = 64
"""Prompts run in cells of this many positions on a fixed grid: what follows a cell never changes it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen and when to stop. The border (server, CLI) checks ranges."""

    max_tokens: int | None = None
    """None: as many as the context has room for."""
    temperature: float = 1.0
    """Below 1e-5 the most likely token is taken."""
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: int = 0


class TokenLogprob(NamedTuple):
    """One alternative at a position."""

    token_id: int
    text: bytes
    logprob: float


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One generated token, with the features of its own position."""

    token_index: int
    """0 for the first generated token."""
    token_id: int
    token_bytes: bytes
    """The token's own bytes, which may be part of a character."""
    position: int
    """Position in the context, prompt included."""
    text: str
    """What the token adds to the answer, final: the texts of all steps joined are the answer."""
    acts: SparseActs
    producer: SparseActs
    """Features of the position before, whose logits this token was sampled from."""
    fvu: float | None
    """Fraction of the residual's variance the SAE does not explain; None without a decoder."""
    logprob: float | None
    """Over the distribution after bias and penalties, temperature not applied; None when not asked for."""
    top_logprobs: tuple[TokenLogprob, ...]
    finish_reason: str | None
    """None but on the last step: stop, length or cancelled."""
    prompt_tokens: int
    is_end: bool = False
    """The end-of-turn token: text "", not counted in usage."""
