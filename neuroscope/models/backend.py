"""What the engine needs of a language model, and nothing else. `torch_backend` is one implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """What one forward pass over new tokens gives."""

    logits: torch.Tensor  # [vocab] float32, the prediction after the last of the ids
    residual: torch.Tensor  # [len(ids), d_model] at the hooked layer, one row per id, in the model's dtype
    numbers: NDArray[np.float32] | None = None
    """`logits` as NumPy has them, where they came so: behind a pass, to ask torch for them takes 50 us."""


class Saved(Protocol):
    """What a cache held at some positions, in a backend's own form. Dropping the last reference frees it."""

    @property
    def nbytes(self) -> int:
        """Memory it takes."""


class Backend(Protocol):
    """A causal language model with a cache, instrumented at one layer."""

    @property
    def context_length(self) -> int:
        """Positions the model was made for."""

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""

    @property
    def layer(self) -> int:
        """The hooked decoder layer, from 0; its *output* is the residual."""

    @property
    def decoding(self) -> str:
        """What runs one more token, in a word or two."""

    def forward(self, ids: Sequence[int]) -> Forward:
        """Append `ids` (at least one) to the cache and run them."""

    def prompt_logits(self, ids: Sequence[int]) -> Iterator[torch.Tensor]:
        """Logits [some, vocab] float32 after each of `ids`, by passes of their own: the cache stays as it is."""

    def rewind(self, length: int) -> int:
        """Keep at most `length` cached positions; returns how many are kept, which may be none."""

    def take(self, start: int, stop: int) -> Saved | None:
        """A copy of what is cached at positions `start` to `stop`, the cache unchanged.

        None when a position cannot be told from those before it (recurrent state), or when there is no memory.
        """

    def restore(self, saved: Sequence[Any]) -> None:
        """Append what `take` gave, in order and at the positions it was taken from.

        What follows is bit for bit what it would be, had the same ids run in the same passes.
        """
