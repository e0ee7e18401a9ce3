"""Ordinary text, against which the patterns of a feature stand out: how often a word, a piece or a kind of word
occurs, and in which windows.

Sets of windows are Python integers used as bitsets, so that "in how many windows without the feature does one of
these eight words occur" is a few machine words per candidate, for 16,384 features in a minute or two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neuroscope.autointerp.classes import CLASSES, classes_of, is_class
from neuroscope.autointerp.evidence import PoolSide
from neuroscope.autointerp.rules import Rule, hits
from neuroscope.autointerp.words import Bools, Vocabulary, Words

AFFIX_LENGTHS = {"prefix": (3, 4, 5, 6), "suffix": (2, 3, 4, 5)}
MIN_NEGATIVES = 20
"""With fewer windows without the feature, a pattern is judged by its share of all tokens instead."""


def bitset(rows: Iterable[int] | NDArray[np.integer], size: int) -> int:
    """The windows `rows` of `size` as an integer with those bits set."""
    flags = np.zeros(size, bool)
    flags[np.asarray(rows, np.int64)] = True
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def members(bits: int, size: int) -> NDArray[np.int64]:
    """The rows of a bitset, ascending."""
    raw = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little", count=size))


def postings(values: NDArray[np.integer], valid: Bools) -> tuple[dict[int, int], dict[int, int]]:
    """For each value in [windows, width]: the bitset of windows that hold it, and how many tokens are it."""
    size, width = valid.shape
    rows = np.repeat(np.arange(size), width)[valid.ravel()]
    flat = values.ravel()[valid.ravel()]
    order = np.argsort(flat, kind="stable")
    distinct, starts = np.unique(flat[order], return_index=True)
    groups = np.split(rows[order], starts[1:]) if len(distinct) else []
    where = {number: bitset(group, size) for number, group in zip(distinct.tolist(), groups, strict=True)}
    count = {number: len(group) for number, group in zip(distinct.tolist(), groups, strict=True)}
    return where, count


class Background:
    """The labelers' side of the pool as words. `vocabulary` must be the one that examples are read with."""

    def __init__(self, pool: PoolSide, vocabulary: Vocabulary) -> None:
        self.pool = pool
        self.words: Words = vocabulary.read(pool.windows)
        self.size = len(self.words)
        self.n_tokens = max(int(self.words.valid.sum()), 1)
        self._everything = (1 << self.size) - 1
        self.windows_of, self.count_of = postings(self.words.folded, self.words.valid)
        self.windows_with = {number: bits.bit_count() for number, bits in self.windows_of.items()}
        self.windows_of_written, self.count_of_written = postings(self.words.word, self.words.valid)
        pieces = vocabulary.folded(self.words.token)
        self.windows_of_piece, self.count_of_piece = postings(pieces, self.words.piece)
        self._classes: dict[int, frozenset[str]] = {}

    @cached_property
    def windows_of_class(self) -> dict[str, int]:
        return {
            name: bitset(np.flatnonzero(is_class(self.words, name).any(1)), self.size) for name in CLASSES
        }

    @cached_property
    def rate_of_class(self) -> dict[str, float]:
        """Share of tokens that are of each class."""
        return {name: float(is_class(self.words, name).sum()) / self.n_tokens for name in CLASSES}

    @cached_property
    def _affixes(self) -> dict[tuple[str, str], list[int]]:
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number in self.count_of:
            word = self.words.vocabulary.words[number]
            if not word.isalpha():
                continue
            for length in AFFIX_LENGTHS["prefix"]:
                if len(word) > length:
                    found["prefix", word[:length]].append(number)
            for length in AFFIX_LENGTHS["suffix"]:
                if len(word) > length:
                    found["suffix", word[-length:]].append(number)
        return found

    def windows_of_affix(self, kind: str, affix: str) -> int:
        return union(self.windows_of[number] for number in self._affixes.get((kind, affix), ()))

    def rate_of_affix(self, kind: str, affix: str) -> float:
        numbers = self._affixes.get((kind, affix), ())
        return sum(self.count_of[number] for number in numbers) / self.n_tokens

    @cached_property
    def _spellings(self) -> dict[int, int]:
        spelled: dict[int, int] = {}
        fold = self.words.vocabulary.folded(np.array(list(self.count_of_written), np.int32)).tolist()
        for folded, written in zip(fold, self.count_of_written, strict=True):
            known = spelled.get(folded)
            if known is None or self.count_of_written[written] > self.count_of_written[known]:
                spelled[folded] = written
        return spelled

    def spelled(self, number: int) -> str:
        """A word in lower case as ordinary text mostly writes it."""
        return self.words.vocabulary.words[self._spellings.get(number, number)]

    def classes_of(self, number: int) -> frozenset[str]:
        """The kinds of words that a word, as written, belongs to wherever it stands."""
        known = self._classes.get(number)
        if known is None:
            known = self._classes[number] = classes_of(self.words.vocabulary.words[number])
        return known

    def negatives(self, feature: int) -> int:
        """Windows in which the feature fires nowhere."""
        return self._everything & ~bitset(self.pool.active(feature), self.size)

    def false_rate(self, found: int, negatives: int, token_rate: float) -> float:
        """Share of the windows `negatives`, in which the feature is silent, that a pattern is found in."""
        if negatives.bit_count() < MIN_NEGATIVES:
            return token_rate
        return (found & negatives).bit_count() / negatives.bit_count()

    def windows_of_rule(self, rule: Rule) -> int:
        """The windows that `rule` hits. Exact; slower than the postings."""
        return bitset(np.flatnonzero(hits(rule, self.words)), self.size)


def union(bitsets: Iterable[int]) -> int:
    found = 0
    for bits in bitsets:
        found |= bits
    return found


def at_least_two(bitsets: Sequence[int]) -> int:
    """The windows that are in two or more of the sets."""
    once = twice = 0
    for bits in bitsets:
        twice |= once & bits
        once |= bits
    return twice
