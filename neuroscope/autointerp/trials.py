"""The windows that labels are judged on: some in which a feature fires, others in which it does not.

All are from documents that no label was made from: windows in which the feature fires are its held-out examples,
over all quantiles of activation, the others come from the scorers' side of the pool, where every firing is known.
What is chosen follows from the evidence and the seed alone. How labels are judged is not known here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.autointerp.background import bitset, members, postings, union
from neuroscope.autointerp.evidence import CENTRE, ExampleTable, PoolSide, document_keys, read_neighbours
from neuroscope.autointerp.words import Vocabulary, Words

Documents = NDArray[np.uint64]

MIN_WINDOWS = 5
"""With fewer windows of a kind there is no score."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many windows of each kind a label is judged on, at most."""

    positives: int = 50
    negatives: int = 20
    near_misses: int = 20


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The windows that a feature's labels are judged on by detection."""

    positives: Words
    negatives: Words
    """Windows in which the feature is silent, chosen at random."""
    near_misses: Words
    """Windows in which it is silent although its own tokens are there, or the features that fire with it most.

    None when there are too few for a score.
    """
    documents: tuple[Documents, Documents, Documents]
    """Of each window of the three."""

    @property
    def enough(self) -> bool:
        """Whether there can be a score."""
        return min(len(self.positives), len(self.negatives)) >= MIN_WINDOWS


@dataclass(frozen=True, slots=True, eq=False)
class Marked:
    """The windows that a feature's labels are judged on by fuzzing: in each the token in the middle is marked."""

    right: Words
    """The feature fires on the marked token."""
    wrong: Words
    """It fires elsewhere in the window; where such windows are few, nowhere."""
    documents: tuple[Documents, Documents]

    @property
    def enough(self) -> bool:
        """Whether there can be a score."""
        return min(len(self.right), len(self.wrong)) >= MIN_WINDOWS


class Trials:
    """Windows for every feature. Raises ArtefactError when a file is missing or not what the sweep writes."""

    def __init__(
        self,
        examples: Path,
        pool: Path,
        vocabulary: Vocabulary,
        *,
        numbers: Numbers,
        neighbours: Path | None = None,
        seed: int = 0,
    ) -> None:
        self._held_out = ExampleTable.read(examples, "held_out", numbers.positives)
        self._pool = PoolSide.read(pool, labelling=False)
        self._documents = document_keys(pl.Series(self._pool.documents, dtype=pl.String))
        self._words = vocabulary.read(self._pool.windows)
        self._size = len(self._words)
        self._with_token, _ = postings(self._pool.windows, self._words.valid)
        self._neighbours = read_neighbours(neighbours)
        self._bits: dict[int, int] = {}
        self._numbers, self._seed, self._vocabulary = numbers, seed, vocabulary
        columns = np.arange(self._words.ids.shape[1])
        self._starts = np.maximum.accumulate(np.where(self._words.joined, 0, columns), axis=1)
        """Column at which the word of each token begins [windows, width]."""

    def of(self, feature: int) -> Trial:
        """The windows for detection."""
        held_out = self._held_out.rows.get(feature, slice(0, 0))
        windows = self._held_out.windows[held_out]
        silent = ((1 << self._size) - 1) & ~self._active(feature)
        negatives = self._choose(feature, silent, self._numbers.negatives)
        near = self._near_misses(feature, silent, windows[:, CENTRE])
        return Trial(
            self._vocabulary.read(windows),
            self._words.take(negatives),
            self._words.take(near),
            (self._held_out.documents[held_out], self._documents[negatives], self._documents[near]),
        )

    def marked(self, feature: int) -> Marked:
        """The windows for fuzzing, as many as for detection, half of them marked wrongly."""
        half = self._numbers.positives // 2
        held_out = self._held_out.rows.get(feature, slice(0, 0))
        right = slice(held_out.start, min(held_out.stop, held_out.start + half))
        active = self._active(feature)
        within = self._firing_words(feature)  # a piece of the word it fires on is no wrong mark
        wrong = self._choose(feature, active & ~within, half)
        if len(wrong) < half:
            silent = ((1 << self._size) - 1) & ~active
            wrong = np.union1d(wrong, self._choose(feature, silent, half - len(wrong)))
        return Marked(
            self._vocabulary.read(self._held_out.windows[right]),
            self._words.take(wrong),
            (self._held_out.documents[right], self._documents[wrong]),
        )

    def _active(self, feature: int) -> int:
        found = self._bits.get(feature)
        if found is None:
            found = self._bits[feature] = bitset(self._pool.active(feature), self._size)
        return found

    def _firing_words(self, feature: int) -> int:
        """The windows of the pool in whose middle stands a word that the feature fires on."""
        rows = self._pool.rows.get(feature, slice(0, 0))
        window, offset = self._pool.window[rows], self._pool.offset[rows]
        in_middle = self._starts[window, offset] == self._starts[window, CENTRE]
        return bitset(window[in_middle], self._size)

    def _near_misses(self, feature: int, silent: int, tokens: NDArray[np.int32]) -> NDArray[np.int64]:
        """Half with the feature's own tokens, half with its neighbours firing; more of one when the other lacks."""
        wanted = self._numbers.near_misses
        same = silent & union(self._with_token.get(int(token), 0) for token in np.unique(tokens))
        room = max(wanted // 2, wanted - same.bit_count())
        beside = self._with_neighbours(feature, silent & ~same, room)
        n_beside = min(beside.bit_count(), room)
        near = np.union1d(
            self._choose(feature, same, wanted - n_beside), self._choose(feature, beside, n_beside)
        )
        return near if len(near) >= MIN_WINDOWS else near[:0]

    def _with_neighbours(self, feature: int, silent: int, wanted: int) -> int:
        """The silent windows in which the nearest neighbours fire: as many neighbours as it takes."""
        found = 0
        for other in self._neighbours.get(feature, ()):
            if found.bit_count() >= wanted:
                break
            found |= silent & self._active(other)
        return found

    def _choose(self, feature: int, windows: int, wanted: int) -> NDArray[np.int64]:
        rows = members(windows, self._size)
        if len(rows) <= wanted:
            return rows
        return np.sort(generator(self._seed, feature).choice(rows, wanted, replace=False))


def generator(seed: int, feature: int) -> np.random.Generator:
    """Chance that is the same in every run."""
    name = f"{seed}:{feature}".encode()
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big"))
