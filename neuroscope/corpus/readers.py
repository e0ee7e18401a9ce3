"""Reads texts out of files and folders: an explicit table of formats at the end.

A reader yields a text, a conversation, or a Skipped with its reason, and never stops at a file that cannot be read.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
import zstandard

from neuroscope.corpus.delimited import read_delimited
from neuroscope.corpus.files import OPENERS, TextFile, inspect, walk
from neuroscope.corpus.found import Found, Skipped
from neuroscope.corpus.tables import read_json, read_parquet
from neuroscope.errors import CorpusError

BLOCK_CHARS = 4 << 20
"""A longer plain text comes in several."""
ARTICLE_TITLE = re.compile(r"^ = [^=].* = $")


def read_files(path: Path) -> Iterator[Found]:
    """A user's file or folder: txt, md, code, jsonl, csv, parquet, each also compressed (gz, bz2, xz, zst)."""
    try:
        path.stat()
    except PermissionError as error:
        raise CorpusError(
            f"{path} may not be read. Give yourself the right to, with: chmod -R u+rX"
        ) from error
    except OSError as error:
        raise CorpusError(f"{path} does not exist. Give a file or folder to --corpus-path.") from error
    for file in walk(path):
        if isinstance(file, Skipped):
            yield file
        else:
            yield from _read_file(file)


def _read_file(file: Path) -> Iterator[Found]:
    suffix = file.suffix.lower()
    packed = suffix if suffix in OPENERS else ""
    kind = Path(file.stem).suffix.lower() if packed else suffix
    try:
        if kind == ".parquet" and not packed:
            yield from _or_empty(read_parquet(file))
        elif kind not in TEXT_READERS:
            yield Skipped(f"suffix {kind}{packed}")
        elif isinstance(text := inspect(file, packed), Skipped):
            yield text
        else:
            if text.doubt is not None:
                yield Skipped(text.doubt)
            yield from _or_empty(TEXT_READERS[kind](text))
    except FileNotFoundError:
        yield Skipped("vanished")
    except PermissionError:
        yield Skipped("not readable")
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError):
        yield Skipped("damaged or unreadable")


def _or_empty(found: Iterator[Found]) -> Iterator[Found]:
    first = next(found, None)
    yield Skipped("empty") if first is None else first
    yield from found


def _read_plain(file: TextFile) -> Iterator[Found]:
    """The whole text, or stretches of about BLOCK_CHARS, each ended at a blank line if there is one."""
    with file.open() as stream:
        rest = ""
        while block := stream.read(BLOCK_CHARS):
            rest += block
            if len(rest) >= BLOCK_CHARS:
                ends = (rest.rfind(mark, len(rest) // 2) + len(mark) for mark in ("\n\n", "\n", " "))
                end = next((end for end in ends if end > len(rest) // 2), len(rest))
                yield rest[:end]
                rest = rest[end:]
        if rest:
            yield rest


TEXT_READERS: dict[str, Callable[[TextFile], Iterator[Found]]] = {
    **dict.fromkeys(("", ".txt", ".md", ".rst", ".html", ".tex"), _read_plain),
    **dict.fromkeys((".py", ".js", ".c", ".h", ".java", ".go", ".rs", ".ts"), _read_plain),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), read_json),
    **dict.fromkeys((".csv", ".tsv"), read_delimited),
}
"""How a file is read once it is text, by its suffix."""
READABLE = (*filter(None, TEXT_READERS), ".parquet", "and all but Parquet with .gz, .bz2, .xz or .zst")


def read_wikitext(path: Path) -> Iterator[Found]:
    """WikiText's Parquet files hold lines; a line ` = Title = ` begins an article."""
    article: list[str] = []
    for found in read_files(path):
        if not isinstance(found, str):
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
    """Of a user's file or folder, the conversations alone."""
    for found in read_files(path):
        yield Skipped("not a conversation") if isinstance(found, str) else found


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
