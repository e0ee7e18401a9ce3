"""A rule is what a label of the `tokens` labeler says, in a form that a program can check.

`marks` finds the tokens of which a rule is true, `hits` the windows that hold one. It sees words, never activations:
the detector that scores a label is `hits`. `describe.py` writes the same rule as text, with nothing left out that
the rule checks and nothing added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuroscope.autointerp.classes import CLASSES, is_class
from neuroscope.autointerp.words import Bools, Words
from neuroscope.errors import LabelError

KINDS = ("word", "piece", "prefix", "suffix", "class", "after", "before", "context", "any")


@dataclass(frozen=True, slots=True)
class Rule:
    """A token satisfies a rule when, by `kind`:

    word     its whole word is one of `items`, in any case (as written, when `cased`)
    piece    it is a piece of a longer word, and one of `items`
    prefix   its word begins with one of `items` and goes on; suffix: ends with one
    class    its word is of the kind named (see `classes`)
    after    the word before its own is one of `items`; before: the word after
    context  its window holds at least `at_least` of `items`
    any      always

    and when the rule in `also`, if there is one, holds for it too.
    """

    kind: str
    items: tuple[str, ...] = ()
    cased: bool = False
    at_least: int = 1
    predicted: bool = False
    """For `before`: the feature also promotes these words in the model's output. Not checked in windows."""
    also: Rule | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LabelError(f"A rule's kind is one of {', '.join(KINDS)}, not {self.kind!r}.")
        if self.kind == "class" and not (len(self.items) == 1 and self.items[0] in CLASSES):
            raise LabelError(f"A rule of kind class names one of {', '.join(CLASSES)}, not {self.items!r}.")

    def with_also(self, other: Rule) -> Rule:
        return replace(self, also=other)

    def to_json(self) -> str:
        return json.dumps(self._plain(), ensure_ascii=False)

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"kind": self.kind, "items": list(self.items)}
        if self.cased:
            plain["cased"] = True
        if self.at_least != 1:
            plain["at_least"] = self.at_least
        if self.predicted:
            plain["predicted"] = True
        if self.also is not None:
            plain["also"] = self.also._plain()
        return plain

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """Raises `LabelError` when `text` is not a rule."""
        try:
            return cls._parse(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LabelError(f"Not a label's rule: {text[:80]!r} ({error}).") from error

    @classmethod
    def _parse(cls, plain: Mapping[str, Any]) -> Rule:
        also = plain.get("also")
        return cls(
            kind=plain["kind"],
            items=tuple(map(str, plain["items"])),
            cased=bool(plain.get("cased", False)),
            at_least=int(plain.get("at_least", 1)),
            predicted=bool(plain.get("predicted", False)),
            also=None if also is None else cls._parse(also),
        )


def marks(rule: Rule, words: Words) -> Bools:
    """The tokens [windows, width] of which `rule` is true."""
    found: Bools = np.logical_and(_MARKS[rule.kind](rule, words), words.valid)
    return found if rule.also is None else found & marks(rule.also, words)


def hits(rule: Rule, words: Words) -> Bools:
    """The windows [windows] that hold a token of which `rule` is true: the rule-based detector."""
    found: Bools = np.asarray(marks(rule, words).any(1))
    return found


def _numbers(rule: Rule, words: Words) -> list[int]:
    return [words.vocabulary.find(item if rule.cased else item.casefold()) for item in rule.items]


def _word(rule: Rule, words: Words) -> Bools:
    return np.isin(words.word if rule.cased else words.folded, _numbers(rule, words))


def _piece(rule: Rule, words: Words) -> Bools:
    return words.piece & np.isin(words.vocabulary.folded(words.token), _numbers(rule, words))


def _affix(rule: Rule, words: Words) -> Bools:
    distinct, places = np.unique(words.folded, return_inverse=True)
    table = np.zeros(len(distinct), bool)
    for place, number in enumerate(distinct.tolist()):
        table[place] = number >= 0 and has_affix(words.vocabulary.words[number], rule)
    return table[places].reshape(words.folded.shape)


def has_affix(word: str, rule: Rule) -> bool:
    """Whether `word` (in lower case) begins or ends as a `prefix` or `suffix` rule says, and is longer than that."""
    matches = word.startswith if rule.kind == "prefix" else word.endswith
    return any(len(word) > len(item) and matches(item) for item in rule.items)


def _class(rule: Rule, words: Words) -> Bools:
    return is_class(words, rule.items[0])


def _after(rule: Rule, words: Words) -> Bools:
    return np.isin(words.previous, _numbers(rule, words))


def _before(rule: Rule, words: Words) -> Bools:
    return np.isin(words.next, _numbers(rule, words))


def _context(rule: Rule, words: Words) -> Bools:
    present = sum((words.folded == number).any(1).astype(np.int32) for number in _numbers(rule, words))
    return np.broadcast_to(np.asarray(present >= rule.at_least)[:, None], words.valid.shape)


def _any(rule: Rule, words: Words) -> Bools:
    return words.valid


_MARKS: dict[str, Callable[[Rule, Words], Bools]] = {
    "word": _word,
    "piece": _piece,
    "prefix": _affix,
    "suffix": _affix,
    "class": _class,
    "after": _after,
    "before": _before,
    "context": _context,
    "any": _any,
}
