"""Which firings of a feature are kept as examples: hashes, bounded collectors, windows.

Every choice is a function of the corpus alone: a fixed hash of (seed, feature, document, position), never a
random generator or Python's own hash. A collector keeps the smallest keys per feature, which merges exactly
in any number of steps. Where firings come from is `sweep`'s business.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

UInts = NDArray[np.uint64]

HALF_WINDOW = 12
KINDS = ("top", "sample", "held_out")
"""Kinds of examples: largest, random, and random over activation quantiles from held-out documents."""

WINDOW = 2 * HALF_WINDOW + 1
"""Token ids of a window: 12 before, the token, 12 after (the specification's 24 tokens of context)."""

HELD_OUT_SHARE = 0.2
"""Share of documents that labels are never made from, so that scores are about unseen text."""

HELD_OUT_SURPLUS = 4
"""Candidates kept per held-out example wanted, which are then spread over their activation quantiles."""

KEY_BITS = 44
"""A key shares 64 bits with the feature's index (20 bits: a million features): one sort orders both."""

_HELD_OUT_SALT = 0x5EED0F0E1D0C7001
_POOL_SALT = 0xB001


def splitmix64(x: UInts) -> UInts:
    """SplitMix64 (Steele, Lea, Flood 2014): a fixed bijection that scatters the bits of its input."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def document_key(doc_id: str) -> int:
    """64 bits that stand for a document in hashes."""
    return int.from_bytes(hashlib.blake2b(doc_id.encode(), digest_size=8).digest(), "big")


def is_held_out(doc_id: str, share: float = HELD_OUT_SHARE) -> bool:
    """Whether a document is kept from the labeler, by hash: the same answer everywhere and for ever."""
    key = np.array([document_key(doc_id) ^ _HELD_OUT_SALT], np.uint64)
    return bool(splitmix64(key)[0] < share * 2.0**64)


def firing_hash(
    seed: int, features: NDArray[Any], documents: UInts, positions: NDArray[Any]
) -> UInts:  # each [m]
    """KEY_BITS bits that put firings in a random, fixed order."""
    where = splitmix64(documents ^ splitmix64(positions.astype(np.uint64) + np.uint64(seed << 32)))
    return splitmix64(where ^ splitmix64(features.astype(np.uint64))) >> np.uint64(64 - KEY_BITS)


def position_hash(seed: int, documents: UInts, positions: NDArray[Any]) -> UInts:
    """KEY_BITS bits that put the pool's windows in a random, fixed order."""
    return firing_hash(seed, np.full(len(positions), _POOL_SALT << 20), documents, positions)


def activation_key(activations: NDArray[np.float32]) -> UInts:
    """Keys that order positive activations from the largest: a positive float's bits sort as it does."""
    bits = np.ascontiguousarray(activations, np.float32).view(np.uint32)
    return np.uint64(0xFFFFFFFF) - bits.astype(np.uint64)


def rank_in_group(groups: NDArray[Any]) -> NDArray[np.int64]:
    """0, 1, 2, ... within each run of equal values of a sorted array."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(groups) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[starts, len(groups)])
    return np.arange(len(groups)) - np.repeat(starts, lengths)


def smallest_per_feature(features: NDArray[Any], keys: UInts, k: int) -> NDArray[np.int64]:
    """Indices of each feature's k smallest keys, in order of (feature, key); equals in the order given."""
    composite = (features.astype(np.uint64) << np.uint64(KEY_BITS)) | keys
    order = np.argsort(composite, kind="stable")
    return order[rank_in_group(features[order]) < k]


def largest_per_document(
    features: NDArray[Any], documents: NDArray[Any], activations: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Indices of each (feature, document)'s largest firing, in order of both; the earliest of equals."""
    width = int(documents.max(initial=0)) + 1
    groups = features.astype(np.uint64) * np.uint64(width) + documents.astype(np.uint64)
    key = activation_key(activations)
    if int(groups.max(initial=0)) < 2**32:
        order = np.argsort((groups << np.uint64(32)) | key, kind="stable")
    else:  # some 4,000 documents in a chunk at a million features
        order = np.lexsort((key, groups))
    earliest: NDArray[np.int64] = order[rank_in_group(groups[order]) == 0]
    return earliest


def spread_over_quantiles(
    features: NDArray[Any], activations: NDArray[np.float32], k: int
) -> NDArray[np.bool_]:
    """True for k firings per feature, evenly spaced in order of activation; for all if at most k."""
    composite = (features.astype(np.uint64) << np.uint64(KEY_BITS)) | activation_key(activations)
    order = np.argsort(composite, kind="stable")
    rank = rank_in_group(features[order])
    _, group, sizes = np.unique(features[order], return_inverse=True, return_counts=True)
    size = sizes[group]
    # Of n, those at which (rank * k + n/2) / n reaches the next whole number: exactly min(k, n).
    step = (rank * k + size // 2) // np.maximum(size, 1)
    following = ((rank + 1) * k + size // 2) // np.maximum(size, 1)
    chosen = np.zeros(len(features), np.bool_)
    chosen[order] = following > step
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class Firings:
    """Firings that are candidates for examples, one per row; every array is [m]."""

    feature: NDArray[np.int32]
    key: UInts
    """Smaller is kept first; below 2^KEY_BITS."""
    activation: NDArray[np.float32]
    token: NDArray[np.int32]
    """Index of the token among the tokens of its chunk."""
    chunk: NDArray[np.int32]
    """Number of the chunk in the plan."""

    @classmethod
    def empty(cls) -> Self:
        none = np.zeros(0, np.int32)
        return cls(none, np.zeros(0, np.uint64), np.zeros(0, np.float32), none, none)

    @classmethod
    def concatenate(cls, parts: list[Self]) -> Self:
        return cls(*(np.concatenate([getattr(p, field.name) for p in parts]) for field in fields(cls)))

    def take(self, rows: NDArray[Any]) -> Self:
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.feature)


class Collector:
    """Keeps the `k` smallest keys per feature of all firings added, in bounded memory.

    Additions wait until they outnumber what is kept, so that each firing is sorted a few times at most and
    memory stays below twice `k * d_sae` firings plus one chunk.
    """

    PATIENCE = 100_000
    """Firings that may wait at least, so that small collections are not sorted at every addition."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._kept = Firings.empty()
        self._waiting: list[Firings] = []

    def add(self, firings: Firings) -> None:
        self._waiting.append(firings)
        if sum(map(len, self._waiting)) > max(len(self._kept), self.PATIENCE):
            self.finish()

    def finish(self) -> Firings:
        """What is kept, in order of (feature, key)."""
        if self._waiting:
            everything = Firings.concatenate([self._kept, *self._waiting])
            self._waiting = []
            self._kept = everything.take(smallest_per_feature(everything.feature, everything.key, self.k))
        return self._kept

    def __len__(self) -> int:
        return len(self._kept) + sum(map(len, self._waiting))


def window_rows(tokens: NDArray[Any], segments: NDArray[Any]) -> NDArray[np.int64]:
    """Indices of the tokens around each of `tokens` [n], as [n, 25]; -1 outside the token's own segment.

    `segments` numbers the stretches of text in a chunk: a document, or one message of a conversation.
    """
    rows = tokens.astype(np.int64)[:, None] + np.arange(-HALF_WINDOW, HALF_WINDOW + 1)
    inside = (rows >= 0) & (rows < len(segments))
    rows = np.where(inside, rows, 0)
    inside &= segments[rows] == segments[tokens][:, None]
    return np.where(inside, rows, -1)


def gather_windows(ids: NDArray[np.int32], rows: NDArray[Any]) -> NDArray[np.int32]:
    """Token ids at `rows` [n, 25], -1 where a row is -1."""
    return np.where(rows < 0, np.int32(-1), ids[rows])
