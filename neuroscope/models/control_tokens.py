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

from neuroscope.errors import PromptError

_PRIVATE_USE = (*range(0xE000, 0xF8FF), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))

_SPARE = re.compile("unused|reserved|@BOS@|2mass")
"""In the names of tokens kept for later (`<unused7>`) or for training: no text was written with them, so a model takes
one in a message for nothing it has seen. Gemma's are not marked as special.
"""


@dataclass(frozen=True, slots=True)
class Guards:
    """Two characters that occur in none of the texts."""

    inside: str
    """Between the characters of a control token that stands in a message."""
    mark: str
    """Around a message's number, to find where the template puts the message."""

    @classmethod
    def unused_in(cls, texts: Iterable[str]) -> Guards:
        """Raises PromptError for texts that leave no two of the private-use characters."""
        used = {char for text in texts for char in text if char >= "\ue000"}
        unused = [*islice((char for char in map(chr, _PRIVATE_USE) if char not in used), 2)]
        if len(unused) < 2:
            raise PromptError("The text holds every private-use character of Unicode; two must be left out.")
        return cls(*unused)


class ControlTokens:
    """A tokenizer's special and spare tokens, and other added tokens that stand in `written`.

    `written` is what the chat template writes: its source, and conversations rendered with it (templates put
    tokens together, as in `'<|' + role + '|>'`).
    """

    def __init__(self, tokenizer: Any, written: str) -> None:
        control = {}
        special = set()
        for i, token in tokenizer.added_tokens_decoder.items():
            text = str(token)
            if token.special:
                special.add(i)
            if token.special or (text.strip() and (text in written or _SPARE.search(text))):
                control[i] = token
        self.special_ids = frozenset(special)
        self.ids = frozenset(control)
        """Tokens that a message must never contain."""
        self._ids = {str(token): i for i, token in control.items()}
        longest_first = sorted(control.values(), key=lambda token: -len(str(token)))
        self._anywhere = _any_of(re.escape(str(token)) for token in longest_first)
        self._unbroken = _any_of(map(_with_stripping, longest_first))

    def break_up(self, text: str, guards: Guards) -> str:
        """`text` with guards in its control tokens, so that none stands in it unbroken."""
        return self._anywhere.sub(lambda found: guards.inside.join(found[0]) + guards.inside, text)

    def cut(self, rendered: str) -> Iterator[tuple[int, int, int | None]]:
        """Pieces (start, end, id) of `rendered`: unbroken control tokens with their id, text with None."""
        start = 0
        for found in self._unbroken.finditer(rendered):
            yield start, found.start(), None
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
    """A pattern of the token with the whitespace it swallows, as the tokenizer would match it.

    A run of whitespace is tried from its start alone: trying each of its characters would take the square of its
    length, which is minutes for a message of spaces.
    """
    return (
        (r"(?:(?<!\s)\s+)?" if token.lstrip else "")
        + re.escape(str(token))
        + (r"\s*" if token.rstrip else "")
    )


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
