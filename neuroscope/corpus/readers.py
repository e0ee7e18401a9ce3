"""Reads texts out of files and folders, one reader per format: an explicit table at the end.

A reader yields a text or a Skipped with its reason. Nothing here hangs on a FIFO, follows a loop of links, or
stops at a file that cannot be read.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml
import zstandard

from neuroscope.errors import CorpusError

TEXT_SUFFIXES = {
    ".txt",
    ".md",
    ".rst",
    ".py",
    ".js",
    ".c",
    ".h",
    ".java",
    ".go",
    ".rs",
    ".ts",
    ".html",
    ".tex",
    "",
}
TEXT_KEYS = ("text", "content", "body", "extract", "message")
"""Where a table or JSON object keeps its text: the first of these, else its longest string."""
OPENERS: dict[str, Callable[[Path], Any]] = {
    "": lambda path: path.open("rb"),
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path: io.BytesIO(_unzst(path)),
}
"""How a file is opened, by its compression."""
MAX_FILE_BYTES = 2 << 30
"""A decompressed file larger than this is skipped: a bomb, or not meant for one machine."""
ARTICLE_TITLE = re.compile(r"^ = [^=].* = $")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or record that gave no text."""

    reason: str


Found = str | Skipped


def read_files(path: Path) -> Iterator[Found]:
    """A user's file or folder: txt, md, code, jsonl, csv, parquet, each also compressed (gz, bz2, xz, zst)."""
    if not path.exists():
        raise CorpusError(f"{path} does not exist. Give a file or folder to --corpus-path.")
    for file in _walk(path):
        if isinstance(file, Skipped):
            yield file
            continue
        try:
            yield from _read_file(file)
        except FileNotFoundError:
            yield Skipped("vanished")
        except PermissionError:
            yield Skipped("not readable")
        except (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError):
            yield Skipped("damaged or unreadable")


def _unzst(path: Path) -> bytes:
    """All frames of a file, up to just over MAX_FILE_BYTES.

    The library's own reader stops after the first frame, and takes a file that is cut for a whole one.
    """
    whole = bytearray()
    frame = None
    with path.open("rb") as file:
        while len(whole) <= MAX_FILE_BYTES and (packed := file.read(4096)):  # of a bomb, not much at once
            while packed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                whole += frame.decompress(packed)
                packed = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
        if frame is not None and len(whole) <= MAX_FILE_BYTES:
            raise EOFError(f"{path} ends inside a frame")
    return bytes(whole)


def _walk(path: Path) -> Iterator[Path | Skipped]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        yield Skipped("not a regular file")
        return
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(path, followlinks=False, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            try:
                regular = stat.S_ISREG(file.stat().st_mode)
            except PermissionError:
                yield Skipped("not readable")
                continue
            except OSError:
                yield Skipped("broken link")
                continue
            yield file if regular else Skipped("not a regular file")
    yield from (Skipped("folder not readable") for _ in unreadable)


def _read_file(file: Path) -> Iterator[Found]:
    suffix = file.suffix.lower()
    packed = suffix if suffix in OPENERS else ""
    kind = Path(file.stem).suffix.lower() if packed else suffix
    if kind == ".parquet":
        yield from _parquet_rows(file)
        return
    if kind not in TEXT_SUFFIXES | {".jsonl", ".json", ".csv", ".tsv"}:
        yield Skipped(f"suffix {kind}")
        return
    with OPENERS[packed](file) as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        yield Skipped("larger than 2 GiB")
        return
    text = _decode(raw)
    if isinstance(text, Skipped):
        yield text
    elif kind == ".jsonl":
        yield from _json_lines(text)
    elif kind == ".json":
        yield from _json_records(text)
    elif kind in {".csv", ".tsv"}:
        yield from _csv_rows(text, "\t" if kind == ".tsv" else ",")
    else:
        yield text if text.strip() else Skipped("empty")


def _decode(raw: bytes) -> Found:
    if b"\0" in raw[:65536] and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Skipped("binary")
    for encoding in ("utf-16",) if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return Skipped("unknown encoding")


def _text_of(record: object) -> Found:
    if isinstance(record, str):
        return record
    if isinstance(record, dict):
        strings = {str(key): value for key, value in record.items() if isinstance(value, str)}
        named = [strings[key] for key in TEXT_KEYS if strings.get(key)]
        if named or strings:
            return named[0] if named else max(strings.values(), key=len)
    return Skipped("no text in record")


def _json_lines(text: str) -> Iterator[Found]:
    for line in text.split("\n"):  # splitlines would also cut at the U+2028 that JSON allows inside a string
        if line.strip():
            try:
                yield _text_of(json.loads(line))
            except (ValueError, RecursionError):
                yield Skipped("invalid JSON")


def _json_records(text: str) -> Iterator[Found]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        yield Skipped("invalid JSON")
        return
    if isinstance(content, list):
        yield from map(_text_of, content)
    elif isinstance(content, dict) and not _holds_text(content):
        yield from map(_text_of, content.values())
    else:
        yield _text_of(content)


def _holds_text(record: dict[str, object]) -> bool:
    return any(isinstance(record.get(key), str) for key in TEXT_KEYS)


def _csv_rows(text: str, delimiter: str) -> Iterator[Found]:
    csv.field_size_limit(sys.maxsize)
    try:
        yield from (_text_of(row) for row in csv.DictReader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        yield Skipped("invalid CSV")


def _parquet_rows(file: Path) -> Iterator[Found]:
    try:
        schema = pl.read_parquet_schema(file)
        strings = [name for name, dtype in schema.items() if dtype == pl.String]
        column = next((key for key in TEXT_KEYS if key in strings), strings[0] if strings else None)
        if column is None:
            yield Skipped("no text column")
            return
        texts = pl.read_parquet(file, columns=[column], glob=False)[column]
    except pl.exceptions.PolarsError:
        yield Skipped("damaged or unreadable")
        return
    yield from (Skipped("null") if text is None else text for text in texts)


def read_wikitext(path: Path) -> Iterator[Found]:
    """WikiText's Parquet files hold lines; a line ` = Title = ` begins an article."""
    article: list[str] = []
    for found in read_files(path):
        if isinstance(found, Skipped):
            yield found
            continue
        if ARTICLE_TITLE.match(found.rstrip("\n")) and article:
            yield "".join(article)
            article = []
        article.append(found)
    if article:
        yield "".join(article)


def read_dialogues(path: Path) -> Iterator[Found]:
    """chatterbot's YAML: `conversations` is a list of lists of turns."""
    for file in sorted(path.glob("*.yml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        for turns in content.get("conversations", []):
            yield "\n".join(str(turn).strip() for turn in turns)


def read_conversations(path: Path) -> Iterator[Found]:
    """JSON lines, each a list of {role, content} messages or an object that holds one as `messages`."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            yield Skipped("invalid JSON")
            continue
        messages = record.get("messages") if isinstance(record, dict) else record
        if isinstance(messages, list) and messages and all(_is_message(message) for message in messages):
            yield json.dumps(messages, ensure_ascii=False)
        else:
            yield Skipped("not a conversation")


def _is_message(message: object) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
    )


def read_standard_library(root: Path) -> Iterator[Found]:
    """Python's own modules under `root`, as code; test suites and installed packages left out."""
    for file in sorted(root.rglob("*.py")):
        parts = set(file.relative_to(root).parts)
        if parts & {
            "test",
            "tests",
            "site-packages",
            "dist-packages",
            "idlelib",
            "lib2to3",
            "turtledemo",
            "encodings",
        }:
            continue
        yield from _read_file(file)


READERS: dict[str, Callable[[Path], Iterator[Found]]] = {
    "files": read_files,
    "wikitext": read_wikitext,
    "dialogues": read_dialogues,
    "conversations": read_conversations,
    "stdlib": read_standard_library,
}
