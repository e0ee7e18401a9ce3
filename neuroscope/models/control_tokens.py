"""Control tokens: those a chat template writes, told apart from the same strings inside a message.

A message's own are broken up by guard characters before the template is rendered; whatever stands unbroken in
the result is the template's. Strings and patterns only: encoding is `chat`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

_PRIVATE_USE = (*range(0xE000, 0xF8FF), *range(0xF0000, 0xFFFFE))


@dataclass(frozen=True, slots=True)
class Guards:
    """Three characters that occur in none of the texts."""

    inside: str
    """Between the characters of a control token that the tokenizer can be told to read as text."""
    cut: str
    """After the first character of one that it cannot: the text is encoded in two pieces."""
    mark: str
    """Around a message's number, to find where the template puts the message."""

    @classmethod
    def unused_in(cls, texts: Iterable[str]) -> Guards:
        used = {char for text in texts for char in text if char >= "\ue000"}
        return cls(*islice((char for char in map(chr, _PRIVATE_USE) if char not in used), 3))


class ControlTokens:
    """A tokenizer's special tokens, and other added tokens that its chat template writes."""

    def __init__(self, tokenizer: Any) -> None:
        added = tokenizer.added_tokens_decoder
        template = str(tokenizer.chat_template or "")
        written = {i: token for i, token in added.items() if str(token).strip() and str(token) in template}
        special = {i: token for i, token in added.items() if token.special}
        self.special_ids = frozenset(special)
        self._special = frozenset(map(str, special.values()))
        self._ids = {str(token): i for i, token in {**written, **special}.items()}
        longest_first = sorted({**written, **special}.values(), key=lambda token: -len(str(token)))
        self._anywhere = _any_of(re.escape(str(token)) for token in longest_first)
        self._unbroken = _any_of(map(_with_stripping, longest_first))

    def break_up(self, text: str, guards: Guards) -> str:
        """`text` with guards in its control tokens, so that none stands in it unbroken."""

        def broken(found: re.Match[str]) -> str:
            token = found[0]
            if token in self._special:
                return guards.inside.join(token) + guards.inside
            return token[0] + guards.cut + guards.inside.join(token[1:]) + guards.inside

        return self._anywhere.sub(broken, text)

    def cut(self, rendered: str, guards: Guards) -> Iterator[tuple[int, int, int | None]]:
        """Pieces (start, end, id) of `rendered`: unbroken control tokens with their id, text with None."""
        start = 0
        for found in re.finditer(f"{guards.cut}|{self._unbroken.pattern}", rendered):
            yield start, found.start(), None
            if found[0] != guards.cut:
                yield found.start(), found.end(), self._ids[found[0].strip()]
            start = found.end()
        yield start, len(rendered), None

    def first_in(self, text: str) -> int | None:
        """Id of the control token that `text` begins with, if any."""
        found = self._unbroken.match(text)
        return self._ids[found[0].strip()] if found else None


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or "(?!)")


def _with_stripping(token: Any) -> str:
    """A pattern of the token with the whitespace it swallows, as the tokenizer would match it."""
    return (r"\s*" if token.lstrip else "") + re.escape(str(token)) + (r"\s*" if token.rstrip else "")


def content_spans(
    rendered: str, literals: Sequence[str], contents: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Where the messages stand in `rendered`.

    `literals` are what the template writes around them, in turn with the messages' numbers. Templates may
    trim a message; what else one does with it is taken to be whatever stands before the next literal.
    """
    at = rendered.find(literals[0]) + len(literals[0])
    for index, literal in zip(literals[1::2], literals[2::2], strict=True):
        text = contents[int(index)]
        forms = (text, text.strip(), text.lstrip(), text.rstrip())
        fitting = (at + len(form) for form in forms if rendered.startswith(form + literal, at))
        end = next(fitting, rendered.find(literal, at) if literal else len(rendered))
        if end < 0:
            return
        yield at, end
        at = end + len(literal)
