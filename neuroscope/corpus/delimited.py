"""Rows of CSV and TSV: which character parts them, whether the first is a header, and what a broken quote costs.

The standard library's Sniffer takes letters for delimiters, and its lenient reader swallows every row after a quote
that is never closed. Here such a row is counted and the next line is read.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TextIO

from neuroscope.corpus.files import TextFile
from neuroscope.corpus.found import Found, Skipped
from neuroscope.corpus.records import KNOWN_NAMES, texts

DELIMITERS = ",;\t|"
NO_DELIMITER = "\x1f"
"""For files of one column: no text has it."""
HEAD_CHARS = 1 << 20
HEAD_ROWS = 200
"""What the layout is decided by."""
MAX_RECORD_CHARS = 16 << 20
"""A record of several lines that is longer has a quote that is never closed."""
COLUMN_NAME = re.compile(r"[^\W\d]([\w .()/%#-]{,18}[\w)%#])?")
"""What may be the name of a column, and is too short for a document if it is none."""


MIN_EVEN, MIN_EVEN_NAMED = 0.9, 0.5
"""Share of rows equally wide from which a character is a delimiter, no punctuation: without a header and with one."""


@dataclass(frozen=True, slots=True)
class Layout:
    delimiter: str
    names: tuple[str, ...]
    header: bool
    """The first row is the names."""


def read_delimited(file: TextFile) -> Iterator[Found]:
    """The text of each row; rows that cannot be read for certain are counted."""
    csv.field_size_limit(sys.maxsize)
    with file.open(newline="") as stream:
        layout = find_layout(stream.read(HEAD_CHARS))
    with file.open(newline="") as stream:
        yield from texts(_records(stream, layout))


def find_layout(head: str) -> Layout:
    """The layout of a file that begins with `head`: the delimiter that gives known names, else even rows."""
    layouts = [_layout(head, delimiter) for delimiter in DELIMITERS + NO_DELIMITER]
    _, best = max(layouts, key=lambda scored: scored[0])
    return best


def _layout(head: str, delimiter: str) -> tuple[tuple[bool, float, int], Layout]:
    """A delimiter's layout after its score: has it known names, how many rows are as wide, how wide."""
    found = _rows(io.StringIO(head, newline=""), delimiter, None)
    # Up to a row that breaks, as the last of a head does: what follows may be the inside of a cell.
    whole = takewhile(lambda row: not isinstance(row, Skipped), found)
    rows = [row for row in islice(whole, HEAD_ROWS) if not isinstance(row, Skipped)] or [[""]]
    first = [cell.strip() for cell in rows[0]]
    known = not KNOWN_NAMES.isdisjoint(map(str.casefold, first))
    header = known or all(map(COLUMN_NAME.fullmatch, first))
    width = len(first) if header else Counter(map(len, rows)).most_common(1)[0][0]
    names = first if header else [str(number) for number in range(width)]
    even = sum(len(row) == len(names) for row in rows[1:] or rows) / len(rows[1:] or rows)
    layout = Layout(delimiter, tuple(names), header)
    if delimiter == NO_DELIMITER:
        return (known, 0.0, 1), layout
    if len(first) == 1 or not (known or even >= (MIN_EVEN_NAMED if header else MIN_EVEN)):
        return (False, -1.0, 0), layout
    return (known, even, width), layout


def _records(stream: TextIO, layout: Layout) -> Iterator[dict[str, str] | Skipped]:
    width = len(layout.names)
    header = layout.header
    for row in _rows(stream, layout.delimiter, width):
        if isinstance(row, Skipped):
            yield row
        elif header:
            header = False
        elif len(row) < width or any(row[width:]):
            yield Skipped("CSV row of another length")
        else:
            yield dict(zip(layout.names, row, strict=False))


def _rows(stream: TextIO, delimiter: str, width: int | None) -> Iterator[list[str] | Skipped]:
    lines = _Lines(stream)
    while True:
        try:
            reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
            row: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            row = _unquoted(lines.taken, delimiter, width)
            lines.give_back()
        lines.taken.clear()
        if row is None:
            yield Skipped("invalid CSV row")
        elif row:
            yield row


def _unquoted(taken: list[str], delimiter: str, width: int | None) -> list[str] | None:
    """A row whose quotes are part of its text (`1,"Yes" she said`), if it is one line and as wide as the others."""
    if len(taken) > 1 or taken[0].count('"') % 2:
        return None
    row = next(csv.reader(taken, delimiter=delimiter, quoting=csv.QUOTE_NONE))
    return row if len(row) == width else None


class _Lines:
    """The lines of a file; those after the first of a record that was broken are given again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._again: deque[str] = deque()
        self.taken: list[str] = []
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._size = 0 if not self.taken else self._size
        line = self._again.popleft() if self._again else next(self._stream)
        self.taken.append(line)
        self._size += len(line)
        if self._size > MAX_RECORD_CHARS and len(self.taken) > 1:
            raise csv.Error("a record without end")
        return line

    def give_back(self) -> None:
        self._again.extendleft(reversed(self.taken[1:]))
