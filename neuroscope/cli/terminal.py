"""Text as a terminal may show it: nothing in it steers the terminal, and its width is counted in columns.

Tokens and labels come from texts and models; written as they are they could move the cursor, hide what stands
beside them or change the window's title.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator

import click

ELLIPSIS = "…"
NARROWEST = 40
UNKNOWN_WIDTH = 100
"""Columns where there is no terminal to ask."""
LOOK_SECONDS = 0.1
"""How long a Ctrl-C at a question may wait at most."""

_NAMED = {"\n": "↵", "\t": "⇥", "\x7f": "␡"}
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Unicode categories of characters that show nothing, change direction or have no meaning."""


def visible(text: str) -> str:
    """`text` on one line, with a sign for each character that shows nothing or that a terminal would obey."""
    return text if text.isascii() and text.isprintable() else "".join(map(_sign, text))


def _sign(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character < " ":
        return chr(0x2400 + ord(character))  # Unicode's pictures of control characters, in their order
    return f"<U+{ord(character):04X}>" if unicodedata.category(character) in _HIDDEN else character


def width(text: str) -> int:
    """Columns that visible text takes: two for wide characters, none for marks on the one before."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """`text` with blanks up to `columns`: behind it, or before it with `right`."""
    blanks = " " * max(0, columns - width(text))
    return blanks + text if right else text + blanks


def isolated(text: str) -> str:
    """Visible text that leaves the order of what stands beside it alone, whichever way it is written itself.

    The two signs added take no column; `width` is to be asked before.
    """
    if text.isascii() or not any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in text):
        return text
    return f"\u2068{text}\u2069"  # first strong isolate, pop directional isolate


def clip(text: str, columns: int) -> str:
    """The beginning of visible text, in at most `columns`."""
    if width(text) <= columns:
        return text
    return _head(text, columns - 1) + ELLIPSIS if columns > 0 else ""


def clip_start(text: str, columns: int) -> str:
    """The end of visible text, in at most `columns`."""
    if width(text) <= columns:
        return text
    return ELLIPSIS + _head(text[::-1], columns - 1)[::-1] if columns > 0 else ""


def _head(text: str, columns: int) -> str:
    used = 0
    for place, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:place]
    return text


def wrap(pieces: Iterable[str], columns: int, blanks: str = " ") -> Iterator[str]:
    """Lines of at most `columns` out of visible pieces; a piece that is too long for one is clipped."""
    line = ""
    for piece in pieces:
        fitting = clip(piece, columns)
        longer = f"{line}{blanks}{fitting}" if line else fitting
        if line and width(longer) > columns:
            yield line
            line = fitting
        else:
            line = longer
    if line:
        yield line


def columns_here() -> int:
    """Columns of the terminal, or of `COLUMNS`."""
    return max(NARROWEST, shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns)


def has_colour() -> bool:
    """Whether stdout is a terminal on which nobody forbade colour (no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal() -> bool:
    """Whether a person reads stdout; it is None where a shell closed it."""
    return sys.stdout is not None and sys.stdout.isatty()


def echo(text: str) -> None:
    """Writes a line to stdout; what its encoding lacks is written as an escape instead of ending the command."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), color=has_colour())


def can_ask() -> bool:
    """Whether a person reads stderr and can answer on stdin; either is None where a shell closed it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirm(question: str) -> bool:
    """Whether the person at stdin and stderr says y or yes; all else is no. Raises Abort on Ctrl-C.

    Not `click.confirm`: a Ctrl-C that comes just before the system's read is seen by Python only after it, and
    so would wait for Enter. Here nothing is read before there is something to read.
    """
    try:
        click.echo(f"{question} [y/N]: ", err=True, nl=False)
        while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            pass
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        raise click.Abort from None
