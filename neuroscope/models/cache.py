"""A key-value cache that appends in place and can be cut back to any length.

transformers' own dynamic cache copies every key and value for every token, and cannot be cut back once a
sliding window is full. Here each layer has spare room that doubles, and keeps all positions: the attention
mask, not the cache, hides what lies before a sliding window. So any positions can be copied out and put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

FIRST_CAPACITY = 256
CAPACITY_STEP = 64  # heads begin at multiples of this, so that what ran before moves no operand's alignment


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one decoder layer [batch, heads, capacity, head_dim], the first `length` filled."""

    keys: Any
    values: Any
    is_initialized: bool

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.soiled = 0
        """From here on the buffers hold zeros; between `length` and here, anything."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append the new positions; the keys and values of all positions so far, as views."""
        start, end = self.length, self.length + key_states.shape[-2]
        if not self.is_initialized or end > self.keys.shape[-2]:
            self._grow(max(FIRST_CAPACITY, 2 * end), key_states, value_states)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        self.filled_to(end)
        return self.keys[:, :, :end], self.values[:, :, :end]

    def filled_to(self, end: int) -> None:
        """Note that the positions before `end` are filled."""
        self.length = end
        self.soiled = max(self.soiled, end)

    def reserve(self, width: int) -> None:
        """Room for `width` positions, with zeros behind those that are filled; some must be.

        For who reads all of the room, and writes the next position without being asked to append it: a weight of zero
        hides a number, but neither a NaN nor an infinity.
        """
        if width > self.keys.shape[-2]:
            self._grow(width, self.keys, self.values)
        if self.soiled > self.length:
            self.keys[:, :, self.length : self.soiled] = 0
            self.values[:, :, self.length : self.soiled] = 0
        self.soiled = self.length + 1

    def _grow(self, needed: int, like_keys: Tensor, like_values: Tensor) -> None:
        """Other buffers, of `needed` positions or some more; both or, where memory is short, neither."""
        capacity = -(-needed // CAPACITY_STEP) * CAPACITY_STEP
        grown = self._grown(self.keys, like_keys, capacity), self._grown(self.values, like_values, capacity)
        self.keys, self.values = grown
        self.is_initialized, self.soiled = True, capacity

    def _grown(self, full: Tensor | None, like: Tensor, capacity: int) -> Tensor:
        grown = like.new_empty(*like.shape[:2], capacity, like.shape[-1])
        if full is not None:
            grown[:, :, : self.length] = full[:, :, : self.length]
        return grown

    def get_seq_length(self) -> int:
        return self.length


def make_cache(config: Any) -> Cache:
    """An empty cache for one sequence of the model with this config."""
    cache = DynamicCache(config=config)
    if all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        cache.layers = [GrowingLayer() for _ in cache.layers]
    return cache


def truncate(cache: Cache, length: int) -> int:
    """Keep the first `length` positions; returns how many are kept, 0 when the cache cannot be cut at all.

    Caches of recurrent or other state cannot be cut back: they hold no single positions.
    """
    if not all(isinstance(layer, GrowingLayer) for layer in cache.layers):
        return 0
    for layer in cache.layers:
        layer.length = min(layer.length, length)
    return min(int(layer.length) for layer in cache.layers)


@dataclass(frozen=True, slots=True, eq=False)
class SavedPositions:
    """Keys and values of some positions, apart from the cache they come from."""

    tensors: tuple[Tensor, ...]  # keys, values of each layer in turn, [1, heads, positions, head_dim]
    nbytes: int


def copy_out(cache: Cache, start: int, stop: int) -> SavedPositions | None:
    """A copy of positions `start` to `stop`; None for a cache that holds no single positions, or not these.

    It is one block of memory: blocks of one size leave no holes when some are freed.
    """
    layers = cache.layers
    if not all(isinstance(layer, GrowingLayer) and layer.length >= stop for layer in layers):
        return None
    parts = [kv[:, :, start:stop] for layer in layers for kv in (layer.keys, layer.values)]
    block = parts[0].new_empty(sum(part.numel() for part in parts))
    pieces = block.split([part.numel() for part in parts])
    tensors = tuple(piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True))
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part)
    return SavedPositions(tensors, block.nbytes)


def append(cache: Cache, saved: Sequence[SavedPositions]) -> None:
    """Put positions from `copy_out` behind those in the cache."""
    for number, layer in enumerate(cache.layers):
        keys = [part.tensors[2 * number] for part in saved]
        values = [part.tensors[2 * number + 1] for part in saved]
        layer.update(torch.cat(keys, dim=-2), torch.cat(values, dim=-2))
