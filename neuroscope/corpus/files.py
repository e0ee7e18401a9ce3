"""Which of a user's files are read, and how their bytes become text: walked, unpacked, decoded.

Every file is gone through once before a word of it is given out: so a damaged file gives nothing, its encoding is
decided by all of its bytes, and the second reading streams. Nothing here hangs on a FIFO or a loop of links.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import zstandard

from neuroscope.corpus.found import Skipped

OPENERS: dict[str, Callable[[Path], Any]] = {
    "": lambda path: path.open("rb"),
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path: io.BufferedReader(_ZstFile(path)),
}
"""How a file is opened, by its compression."""
MAX_FILE_BYTES = 2 << 30
"""A decompressed file larger than this is skipped: a bomb, or not meant for one machine."""
BLOCK_BYTES = 1 << 20
BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MAX_FOREIGN = 0.25
"""Share of bytes beyond ASCII from which a file is in no Western encoding: French has 0.05, Russian 0.8."""
MAX_REPLACED = 0.01
"""Share of characters from which UTF-16 and UTF-32 are too damaged to be read."""
_BAD_BYTES = re.compile("[\udc80-\udcff]")
"""What `surrogateescape` makes of bytes that are not UTF-8."""
_NOT_CP1252 = frozenset("\udc81\udc8d\udc8f\udc90\udc9d")


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file that unpacks whole and is text."""

    path: Path
    packed: str
    """A key of OPENERS."""
    encoding: str
    size: int
    """Bytes when unpacked."""
    doubt: str | None
    """Why the text may not be what was meant: bytes that are none read as U+FFFD, or nothing tells the encoding."""

    @contextmanager
    def open(self, newline: str | None = None) -> Iterator[TextIO]:
        """The text from its beginning; `newline` as in the built-in `open`."""
        with (
            OPENERS[self.packed](self.path) as binary,
            io.TextIOWrapper(binary, self.encoding, "replace", newline) as text,
        ):
            yield text


def walk(path: Path) -> Iterator[Path | Skipped]:
    """A file, or the files below a folder; links to folders and hidden names are left out, and said so."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        yield Skipped("not a regular file")
        return
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(path, followlinks=False, onerror=unreadable.append):
        hidden = [name for name in folders if name.startswith(".")]
        links = [name for name in folders if name not in hidden and Path(folder, name).is_symlink()]
        yield from (Skipped("hidden folder") for _ in hidden)
        yield from (Skipped("link to a folder") for _ in links)
        folders[:] = sorted(set(folders) - {*hidden, *links})
        for name in sorted(names):
            yield Skipped("hidden file") if name.startswith(".") else _regular(Path(folder, name))
    yield from (Skipped("folder not readable") for _ in unreadable)


def _regular(file: Path) -> Path | Skipped:
    try:
        regular = stat.S_ISREG(file.stat().st_mode)
    except PermissionError:
        return Skipped("not readable")
    except OSError:
        return Skipped("broken link")
    return file if regular else Skipped("not a regular file")


def inspect(path: Path, packed: str) -> TextFile | Skipped:
    """Goes through the whole file: is it text, in which encoding? Raises what the unpacking raises."""
    with OPENERS[packed](path) as stream:
        block = stream.read(BLOCK_BYTES)
        marked = next((name for bom, name in BOMS if block.startswith(bom)), None)
        decoder = codecs.getincrementaldecoder(marked or "utf-8")("replace" if marked else "surrogateescape")
        size = characters = bad = 0
        kinds: set[str] = set()
        while True:
            size += len(block)
            if size > MAX_FILE_BYTES:
                return Skipped("larger than 2 GiB")
            text = decoder.decode(block, final=not block)
            if "\0" in text:
                return Skipped("binary")
            characters += len(text)
            found = _bad_characters(text, bool(marked))
            bad += len(found)
            kinds.update(found)
            if not block:
                break
            block = stream.read(BLOCK_BYTES)
    if marked:
        encoding = marked if bad <= characters * MAX_REPLACED else None
    else:
        encoding = _eight_bit(size, size - characters, bad, kinds)
    if encoding is None:
        return Skipped("unknown encoding")
    doubt = (
        "taken for Windows-1252" if encoding == "cp1252" else "damaged characters replaced" if bad else None
    )
    return TextFile(path, packed, encoding, size, doubt)


def _bad_characters(text: str, marked: bool) -> list[str]:
    if marked:
        return ["\ufffd"] * text.count("\ufffd")
    try:
        text.encode()  # ten times as fast as the search
    except UnicodeEncodeError:
        return _BAD_BYTES.findall(text)
    return []


def _eight_bit(size: int, continued: int, bad: int, kinds: set[str]) -> str | None:
    """UTF-8, also with some bad bytes, or Windows-1252; None for neither.

    `continued` counts the bytes that go on a UTF-8 character, which Western text in another encoding hardly has.
    """
    if not bad or bad < continued:
        return "utf-8-sig"
    foreign = kinds & _NOT_CP1252 or bad > size * MAX_FOREIGN or bad < 4 * continued
    return None if foreign else "cp1252"


class _ZstFile(io.RawIOBase):
    """All frames of a file; EOFError where it is cut.

    The library's own reader takes a file that is cut for a whole one.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._frame: Any = None
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            packed = self._packed or self._file.read(4096)  # of a bomb, not much at once
            if not packed:
                if self._frame is not None:
                    raise EOFError(f"{self._file.name} ends inside a frame")
                return 0
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            self._plain = memoryview(self._frame.decompress(packed))
            self._packed = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        given = self._plain[: len(buffer)]
        buffer[: len(given)] = given
        self._plain = self._plain[len(given) :]
        return len(given)

    def close(self) -> None:
        self._file.close()
        super().close()
