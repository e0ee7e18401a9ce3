"""The sweep's progress bar: tokens, tokens per second and time left, on stderr.

How many tokens the documents have is known only once they are tokenised, so the total starts as a guess
from their characters and follows what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

CHARACTERS_PER_TOKEN = 4.0
"""First guess."""


class TokenBar:
    """Counts tokens towards a total that is corrected at every chunk."""

    def __init__(self, bar: tqdm[Any], characters: int) -> None:
        self._bar = bar
        self._characters_left = characters
        self._characters = 0
        self._tokens = 0

    def expect(self, characters: int, tokens: int) -> None:
        """A chunk was tokenised: `characters` of text are `tokens` tokens."""
        self._characters += characters
        self._characters_left -= characters
        self._tokens += tokens
        ratio = self._tokens / self._characters if self._characters else 1 / CHARACTERS_PER_TOKEN
        self._bar.total = self._tokens + round(self._characters_left * ratio)

    def advance(self, tokens: int) -> None:
        self._bar.update(tokens)

    def align(self) -> None:
        """A chunk is done: tokens that are not measured (scaffold) count too."""
        self._bar.update(self._tokens - self._bar.n)


@contextmanager
def token_bar(characters: int, title: str, *, visible: bool = True) -> Iterator[TokenBar]:
    """A bar for `characters` characters of text; none is shown when there is nothing to do."""
    bar: tqdm[Any]
    with tqdm(
        total=round(characters / CHARACTERS_PER_TOKEN),
        desc=title,
        unit="tok",
        unit_scale=True,
        mininterval=1,
        file=sys.stderr,
        disable=not (visible and characters),
    ) as bar:
        yield TokenBar(bar, characters)
