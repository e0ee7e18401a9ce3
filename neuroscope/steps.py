"""What the engine gives: tokens of an answer and of a prompt, with features or log probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from neuroscope.sae.autoencoder import SparseActs


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


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of a prompt, with the fields that a generated one has."""

    token_id: int
    token_bytes: bytes
    text: str
    """What it adds to the text; a character comes with its last token."""
    logprob: float | None
    """None for the first: nothing stands before it."""
    top_logprobs: tuple[TokenLogprob, ...]
    is_end: bool = False


class EncodedToken(NamedTuple):
    """One token of a given text with the features of its position; nothing is generated."""

    token_id: int
    text: str
    content: bool
    """False for BOS, role headers and turn markers."""
    acts: SparseActs
    fvu: float | None


@dataclass(frozen=True, slots=True, eq=False)
class PromptCell:
    """Successive tokens of a prompt with their features, as they become known."""

    start: int
    """Position of the first one."""
    tokens: tuple[EncodedToken, ...]
    before: SparseActs | None
    """Features of the position before; None at the start of the prompt."""
