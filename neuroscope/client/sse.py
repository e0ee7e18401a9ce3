"""Server-sent events out of bytes, by the rules of the HTML standard ("Parsing an event stream").

What an event's data mean is the reader's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_EVENT_BYTES = 64_000_000
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class Message(NamedTuple):
    """One event with data."""

    name: str
    id: str
    data: str


class Parser:
    """Takes bytes as they come, cut anywhere, and gives each event as soon as its empty line is there.

    An event that the end of the stream cuts short is never given.
    """

    def __init__(self) -> None:
        self.last_id = ""
        """Of the newest event or of a block without data: where to go on after this."""
        self.opening_id = ""
        """That of a block without data before the first event: where the stream is."""
        self._has_begun = False
        self.retry_ms: int | None = None
        """How long the server wants readers to wait before they come again."""
        self._line = bytearray()
        self._after_cr = False
        self._is_first = True
        self._id = ""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Message]:
        """The events that `piece` completes. Raises ValueError for one beyond MAX_EVENT_BYTES."""
        if not piece:
            return
        if self._after_cr and piece[:1] == b"\n":  # the second half of a CRLF
            piece = piece[1:]
        self._after_cr = piece[-1:] == b"\r" or (self._after_cr and not piece)
        *ended, rest = _LINE_ENDS.split(piece)
        for part in ended:
            self._grow(part)
            line, self._line = bytes(self._line), bytearray()
            if (message := self._take(line)) is not None:
                yield message
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        self._line += part
        if self._size + len(self._line) > MAX_EVENT_BYTES:
            raise ValueError(f"an event is longer than {MAX_EVENT_BYTES:,} bytes")

    def _take(self, line: bytes) -> Message | None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(line)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value[:9])
        return None

    def _dispatch(self) -> Message | None:
        self.last_id = self._id
        if not self._has_begun:
            self.opening_id, self._has_begun = "" if self._data else self._id, bool(self._data or self._id)
        name, lines = self._name or "message", self._data
        self._name, self._data, self._size = "", [], 0
        return Message(name, self.last_id, "\n".join(lines)) if lines else None
