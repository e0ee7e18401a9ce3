"""The examples of one feature, word by word, beside ordinary text; and how to pick the words that tell them apart.

A feature has some fifty examples and there are many features, so this is plain Python over short lists. What kind of
pattern the picked words make is `patterns`' business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np

from neuroscope.autointerp.background import Background, union
from neuroscope.autointerp.classes import PLACES, is_class
from neuroscope.autointerp.describe import is_topic
from neuroscope.autointerp.evidence import Examples
from neuroscope.autointerp.rules import Rule, has_affix
from neuroscope.autointerp.words import PAD, Vocabulary

MAX_ITEMS = 8
CANDIDATES = 24
MIN_GAIN = 0.02
"""What one more word must add: share of examples covered less share of silent windows hit."""
PRIOR_TOKENS = 20.0
MIN_Z = 1.0


@dataclass(frozen=True, slots=True)
class Activating:
    """One activating token. Words are numbers of the vocabulary, in lower case unless said; -1 where there is none."""

    word: int
    written: int
    """The word as it is written."""
    previous: int
    next: int
    piece: int
    """The token's own text, when it is a piece of a longer word."""
    context: frozenset[int]
    """Content words of the window."""
    classes: frozenset[str]


def read_tokens(background: Background, examples: Examples) -> list[Activating]:
    """The activating tokens of `examples`."""
    vocabulary = background.words.vocabulary
    words = vocabulary.read(examples.windows)
    rows = np.arange(len(examples))
    places = {name: is_class(words, name)[rows, examples.at].tolist() for name in PLACES}
    topics = words.valid & vocabulary.table("topic", is_topic)[np.maximum(words.folded, 0)]
    own = np.where(words.piece, vocabulary.folded(words.token), np.int32(PAD))
    columns = [
        values[rows, examples.at].tolist()
        for values in (words.folded, words.word, words.previous, words.next, own)
    ]
    tokens = []
    for row, (word, written, previous, following, piece) in enumerate(zip(*columns, strict=True)):
        context = frozenset(words.folded[row, topics[row]].tolist())
        here = (name for name, holds in places.items() if holds[row])
        classes = background.classes_of(written).union(here)
        tokens.append(Activating(word, written, previous, following, piece, context, classes))
    return tokens


_VALUES = {
    ("word", False): "word",
    ("word", True): "written",
    ("piece", False): "piece",
    ("after", False): "previous",
    ("before", False): "next",
}


@dataclass(frozen=True)
class Case:
    """The labelling examples of one feature."""

    background: Background
    tokens: Sequence[Activating]
    weights: Sequence[float]
    """By activation; they sum to 1."""
    negatives: int
    """Bitset of the background windows in which the feature is silent."""
    promoted: frozenset[int] = frozenset()
    """Words that the feature promotes in the output."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.background.words.vocabulary

    @cached_property
    def words(self) -> list[str]:
        """The activating words as they are written."""
        return [self.vocabulary.words[token.written] for token in self.tokens]

    def take(self, rows: Iterable[int], negatives: int | None = None) -> Case:
        """The examples `rows`, their weights summing to 1 again."""
        rows = list(rows)
        weights = [self.weights[row] for row in rows]
        total = sum(weights) or 1.0
        return Case(
            self.background,
            [self.tokens[row] for row in rows],
            [weight / total for weight in weights],
            self.negatives if negatives is None else negatives,
            self.promoted,
        )

    def covered(self, rule: Rule) -> list[bool]:
        """Whether `rule` is true of each activating token: `marks` at that token."""
        holds = self._holds(rule)
        if rule.also is None:
            return holds
        return [one and other for one, other in zip(holds, self.covered(rule.also), strict=True)]

    def coverage(self, rule: Rule) -> float:
        """Share of the examples, by weight, of which `rule` is true."""
        return sum(weight for weight, holds in zip(self.weights, self.covered(rule), strict=True) if holds)

    def _holds(self, rule: Rule) -> list[bool]:
        if rule.kind == "any":
            return [True] * len(self.tokens)
        if rule.kind == "class":
            return [rule.items[0] in token.classes for token in self.tokens]
        if rule.kind in ("prefix", "suffix"):
            return [has_affix(self.vocabulary.words[token.word], rule) for token in self.tokens]
        items = {self.vocabulary.find(item if rule.cased else item.casefold()) for item in rule.items}
        if rule.kind == "context":
            return [len(items & token.context) >= rule.at_least for token in self.tokens]
        return [value in items for value in map(attrgetter(_VALUES[rule.kind, rule.cased]), self.tokens)]


@dataclass(frozen=True, slots=True)
class Found:
    """A rule, and how common it is in ordinary text."""

    rule: Rule
    windows: int
    """Bitset of the background windows that satisfy it."""
    token_rate: float
    """Share of background tokens that satisfy it."""


def log_odds(share: float, effective: float, count: float, total: float) -> float:
    """z-score of weighted log-odds against a corpus prior (Monroe, Colaresi and Quinn 2008, equation 22).

    share: of the examples that show a word, which stand for `effective` tokens; count: its occurrences among `total`
    tokens of ordinary text.
    """
    prior = (count + 0.5) / (total + 1.0)
    seen = share * effective + PRIOR_TOKENS * prior
    unseen = max(effective + PRIOR_TOKENS - seen, 1e-9)
    return (math.log(seen / unseen) - math.log(prior / (1 - prior))) * math.sqrt(seen)


def shares_of(values: Sequence[int], weights: Sequence[float]) -> dict[int, float]:
    """The weight of each value that is not padding."""
    shares: dict[int, float] = {}
    for value, weight in zip(values, weights, strict=True):
        if value >= 0:
            shares[value] = shares.get(value, 0.0) + weight
    return shares


def specific(
    shares: Mapping[int, float], effective: int, counts: Mapping[int, int], total: int, min_z: float = MIN_Z
) -> list[int]:
    """The values most specific to the examples, most specific first."""
    z = {value: log_odds(share, effective, counts.get(value, 0), total) for value, share in shares.items()}
    order = sorted(z, key=lambda value: (-z[value] * math.sqrt(shares[value]), value))
    return [value for value in order[:CANDIDATES] if z[value] >= min_z]


def cover(
    case: Case, carriers: Mapping[int, frozenset[int]], where: Mapping[int, int], counts: Mapping[int, int]
) -> list[int]:
    """Greedily, the values that cover most examples for the fewest silent windows hit; best first.

    carriers: the examples that show each value; where: the background windows; counts: the background tokens.
    """
    background, weights = case.background, case.weights
    gains = {value: sum(weights[row] for row in rows) for value, rows in carriers.items()}
    chosen = list[int]()
    covered, found, false, tokens = frozenset[int](), 0, 0.0, 0
    while gains and len(chosen) < MAX_ITEMS:
        best, best_gain, best_false = -1, MIN_GAIN, false
        for value, share in gains.items():
            if share <= best_gain:
                continue
            rate = background.false_rate(
                found | where.get(value, 0),
                case.negatives,
                (tokens + counts.get(value, 0)) / background.n_tokens,
            )
            if share - (rate - false) > best_gain:
                best, best_gain, best_false = value, share - (rate - false), rate
        if best < 0:
            break
        chosen.append(best)
        covered |= carriers[best]
        found, false, tokens = found | where.get(best, 0), best_false, tokens + counts.get(best, 0)
        del gains[best]
        for value in gains:
            if carriers[value] & carriers[best]:
                gains[value] = sum(weights[row] for row in carriers[value] - covered)
    return chosen


def windows_and_rate(
    background: Background, chosen: Iterable[int], where: Mapping[int, int], counts: Mapping[int, int]
) -> tuple[int, float]:
    """The background windows that show one of `chosen`, and the share of background tokens."""
    chosen = list(chosen)
    rate = sum(counts.get(number, 0) for number in chosen) / background.n_tokens
    return union(where.get(number, 0) for number in chosen), rate
