"""Text out of generated tokens, as it comes: whole characters, and nothing a stop string may still take back.

Tokens become bytes and bytes become text, so that a character split over tokens waits for its last byte, and
broken bytes cost a U+FFFD each, as in any UTF-8 decoder. (`tokenizers.decoders.DecodeStream` does the same
but fails on a broken byte after a byte-fallback character, and sits on a real U+FFFD.)
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Generic, TypeVar

from tokenizers import Tokenizer

Item = TypeVar("Item")

LATELY = 4096
"""Tokens whose bytes are at hand: each is asked for several times while it is generated."""


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: printable ones as they are, others from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(own)]
    return {chr(byte): byte for byte in own} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class TokenBytes:
    """The bytes a token adds to a text, for byte-level and for byte-fallback (SentencePiece) vocabularies."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = {id: str(token) for id, token in tokenizer.get_added_tokens_decoder().items()}
        self._alphabet = _byte_level_alphabet() if "ByteLevel" in str(tokenizer.decoder) else None
        self._of = lru_cache(LATELY)(self._bytes_of)

    def __call__(self, token: int) -> bytes:
        """Empty for an id the tokenizer does not know (models pad their vocabularies)."""
        return self._of(token)

    def _bytes_of(self, token: int) -> bytes:
        piece: str = self._added.get(token) or self._tokenizer.id_to_token(token) or ""
        if self._alphabet is None:
            if (
                token not in self._added
                and len(piece) == 6
                and piece.startswith("<0x")
                and piece.endswith(">")
            ):
                return bytes([int(piece[3:5], 16)])
            return piece.replace("▁", " ").encode()
        if token in self._added or any(char not in self._alphabet for char in piece):
            return piece.encode()
        return bytes(self._alphabet[char] for char in piece)


class Detokenizer:
    """The text each new token adds; a character split over tokens comes with the token that completes it."""

    def __init__(self, token_bytes: Callable[[int], bytes], hidden: frozenset[int] = frozenset()) -> None:
        self._token_bytes = token_bytes
        self._hidden = hidden
        """Tokens that add no text, such as special ones."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def inside_character(self) -> bool:
        """The last tokens hold bytes of a character that is not complete."""
        return bool(self._decoder.getstate()[0])

    def step(self, token: int) -> str:
        return "" if token in self._hidden else self._decoder.decode(self._token_bytes(token))

    def finish(self) -> str:
        """What an incomplete character at the end comes to: U+FFFD."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Where a text stops, and how much of its end may be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)

    def __bool__(self) -> bool:
        return bool(self._stops)

    def find(self, text: str) -> int | None:
        """Start of the stop string that is complete first, wherever tokens end; None without one."""
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def open_end(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0


class TextGate(Generic[Item]):
    """Lets items pass, in order, once their text is final.

    An item waits while its text may be part of a stop string, or while it ends inside a character; when a
    stop string is complete, it and all after it are cut away. The texts of all that passed are the answer.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = StopStrings(stops)
        self._waiting: list[tuple[Item, str]] = []
        self.stopped = False
        """A stop string was found; what passed with it is the last."""

    def push(self, item: Item, text: str, *, inside_character: bool = False) -> list[tuple[Item, str]]:
        """Add an item; those that pass now, each with its final text."""
        if not (self._waiting or inside_character or self._stops):
            return [(item, text)]
        self._waiting.append((item, text))
        joined = "".join(waiting for _, waiting in self._waiting)
        stop = self._stops.find(joined)
        if stop is not None:
            self.stopped = True
            self._waiting = _cut(self._waiting, stop)
            return self._pass(len(self._waiting))
        final = len(joined) - self._stops.open_end(joined)
        ends = accumulate(len(waiting) for _, waiting in self._waiting)
        count = sum(end <= final for end in ends)
        return self._pass(min(count, len(self._waiting) - inside_character))

    def flush(self, tail: str = "") -> list[tuple[Item, str]]:
        """All that wait, `tail` added to the last: no more text will come."""
        if self._waiting and tail:
            item, text = self._waiting[-1]
            self._waiting[-1] = (item, text + tail)
        return self._pass(len(self._waiting))

    def _pass(self, count: int) -> list[tuple[Item, str]]:
        passing, self._waiting = self._waiting[:count], self._waiting[count:]
        return passing


def _cut(items: Iterable[tuple[Item, str]], length: int) -> list[tuple[Item, str]]:
    """The same items with the first `length` characters of their joined texts."""
    cut = []
    for item, text in items:
        cut.append((item, text[:length]))
        length = max(length - len(text), 0)
    return cut
