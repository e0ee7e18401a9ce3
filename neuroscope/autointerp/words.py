"""From windows of token ids to words: the pieces of a word are joined, case and blanks are set aside.

A feature fires on tokens, a reader reads words. Everything that rules match on is made here, once per set of
windows; what the words mean is decided in `classes` and `rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]
TokenText = Callable[[int], str]

PAD = -1
_NONE, _LETTER, _DIGIT = 0, 1, 2
BROKEN = "\ufffd"
"""Stands in a token's text for the bytes of a part of a character."""
_CJK = 0x2E80
"""From here on scripts are written without blanks between words: their characters are not joined."""


def _kind(character: str) -> int:
    if character.isdigit():
        return _DIGIT
    if character == BROKEN or (character.isalpha() and ord(character) < _CJK):
        return _LETTER
    return _NONE


def word_of(text: str) -> str:
    """A token's text as a word: blanks around it dropped; a blank token stays what it is, a line break is one."""
    stripped = text.strip()
    if stripped or not text:
        return stripped
    return "\n" if "\n" in text else text


class Vocabulary:
    """The words met so far, numbered; grows as windows are read. `text` gives the text of a token id."""

    def __init__(self, text: TokenText) -> None:
        self._text = text
        self.words: list[str] = []
        self._index: dict[str, int] = {}
        self._folds = np.zeros(1024, np.int32)
        self._runs: dict[tuple[int, ...], int] = {}
        self._tables: dict[str, Bools] = {}
        self._token_word = np.full(1024, PAD, np.int32)
        self._left = np.zeros(1024, np.int8)
        self._right = np.zeros(1024, np.int8)

    def intern(self, word: str) -> int:
        """The number of `word`, as it is written."""
        number = self._index.get(word)
        if number is None:
            number = self._index[word] = len(self.words)
            self.words.append(word)
            if number == len(self._folds):
                self._folds = np.append(self._folds, np.zeros_like(self._folds))
            self._folds[number] = number
            folded = word.casefold()
            if folded != word:
                self._folds[number] = self.intern(folded)
        return number

    def find(self, word: str) -> int:
        """The number of `word`, or -2 when no window held it."""
        return self._index.get(word, -2)

    def folded(self, words: Ints) -> Ints:
        """Each word's number in lower case; padding stays."""
        return np.where(words >= 0, self._folds[words], np.int32(PAD))

    def table(self, name: str, accepts: Callable[[str], bool]) -> Bools:
        """Whether each word is one that `accepts` takes. Asked once per word; `name` stands for `accepts`."""
        known = self._tables.get(name, np.zeros(0, bool))
        if len(known) < len(self.words):
            new = np.array([accepts(word) for word in self.words[len(known) :]], bool)
            known = self._tables[name] = np.append(known, new)
        return known

    def token(self, token_id: int) -> str:
        return self._text(token_id).replace("▁", " ")

    def read(self, ids: Ints) -> Words:
        """The words of windows `ids` [n, width], -1 where a document ends."""
        ids = np.ascontiguousarray(ids)
        self._learn(np.unique(ids))
        valid = ids >= 0
        safe = np.where(valid, ids, 0)
        left, right = self._left[safe] * valid, self._right[safe] * valid
        joined = np.zeros_like(valid)
        joined[:, 1:] = (left[:, 1:] != _NONE) & (left[:, 1:] == right[:, :-1])
        token = np.where(valid, self._token_word[safe], np.int32(PAD))
        return Words(self, ids, self._join(ids, token, joined), token, joined)

    def _learn(self, ids: Ints) -> None:
        size = int(ids[-1]) + 1 if len(ids) else 0
        if size > len(self._token_word):
            grow = max(size, 2 * len(self._token_word)) - len(self._token_word)
            self._token_word = np.append(self._token_word, np.full(grow, PAD, np.int32))
            self._left = np.append(self._left, np.zeros(grow, np.int8))
            self._right = np.append(self._right, np.zeros(grow, np.int8))
        ids = ids[ids >= 0]
        for i in ids[self._token_word[ids] == PAD].tolist():
            text = self.token(i)
            self._token_word[i] = self.intern(word_of(text))
            if text:
                self._left[i], self._right[i] = _kind(text[0]), _kind(text[-1])

    def _join(self, ids: Ints, token: Ints, joined: Bools) -> Ints:
        """The word that covers each token: the tokens' own, or for pieces the word they make together."""
        word = token.copy()
        flat, out, width = ids.ravel(), word.ravel(), ids.shape[1]
        follows = joined.ravel()
        ends_run = np.append(~follows[1:], True) if len(follows) else follows
        starts = np.flatnonzero(~follows & ~ends_run)
        ends = np.flatnonzero(follows & ends_run) + 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            key = tuple(flat[start:end].tolist())
            number = self._runs.get(key)
            if number is None:
                number = self.intern(word_of("".join(map(self.token, key))))
                self._runs[key] = number
            out[start:end] = number
        return out.reshape(-1, width)


@dataclass(frozen=True)
class Words:
    """Windows read as words; every array is [windows, width] and speaks of the token at its place."""

    vocabulary: Vocabulary
    ids: Ints
    word: Ints
    """Number of the word that covers the token."""
    token: Ints
    """Number of the token's own text; differs from `word` for a piece."""
    joined: Bools
    """The token goes on with the word before it."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def valid(self) -> Bools:
        return self.ids >= 0

    @cached_property
    def folded(self) -> Ints:
        return self.vocabulary.folded(self.word)

    @cached_property
    def piece(self) -> Bools:
        """The token is one of several that make its word."""
        piece = self.joined.copy()
        piece[:, :-1] |= self.joined[:, 1:]
        return piece

    @cached_property
    def previous(self) -> Ints:
        """The word before the token's word, in lower case; padding at the window's start."""
        columns = np.arange(self.ids.shape[1], dtype=np.int32)
        start = np.maximum.accumulate(np.where(self.joined, 0, columns), axis=1)
        before = np.take_along_axis(self.folded, np.maximum(start - 1, 0), axis=1)
        return np.where(self.valid & (start > 0), before, np.int32(PAD))

    @cached_property
    def next(self) -> Ints:
        """The word after the token's word, in lower case; padding at the window's end."""
        last = self.ids.shape[1] - 1
        columns = np.arange(last + 1, dtype=np.int32)
        goes_on = np.zeros_like(self.joined)
        goes_on[:, :-1] = self.joined[:, 1:]
        ends = np.where(goes_on, last, columns)[:, ::-1]
        end = np.minimum.accumulate(ends, axis=1)[:, ::-1]
        after = np.take_along_axis(self.folded, np.minimum(end + 1, last), axis=1)
        return np.where(self.valid & (end < last), after, np.int32(PAD))

    def take(self, rows: NDArray[np.integer] | Bools) -> Words:
        return Words(self.vocabulary, self.ids[rows], self.word[rows], self.token[rows], self.joined[rows])
