"""Builds the corpus: sources to documents {doc_id, stratum, source, text}, de-duplicated, in order of doc_id.

A document is a piece of real text of at most `document_chars` characters; its id is the hash of its text, so the
order is random, fixed, and the same wherever it is built. Everything skipped is counted with its reason. Which
documents are swept is the sweep's business; conversations written by the model itself are `chat`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope.corpus.found import Conversation, Skipped
from neuroscope.corpus.readers import READABLE, READERS
from neuroscope.errors import CorpusError
from neuroscope.sources import file_sha256, replace_atomically

SCHEMA = {"doc_id": pl.String, "stratum": pl.String, "source": pl.String, "text": pl.String}
CHAT = "chat"
"""The stratum of conversations, wherever they were found: their texts are JSON lists of messages, never cut."""
MIN_CHARS = 20
"""Shorter pieces carry no context for an example."""

ROW_GROUP = 2048
"""Documents that the sweep unpacks together at least."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """Where documents come from, resolved to a local path."""

    name: str
    stratum: str
    path: Path
    format: str
    """A key of readers.READERS."""
    licence: str = "unknown"
    max_documents: int | None = None


@dataclass(slots=True)
class SourceReport:
    """What became of one source; stands in corpus.json."""

    name: str
    stratum: str
    licence: str
    documents: int = 0
    characters: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "stratum": self.stratum,
            "licence": self.licence,
            "documents": self.documents,
            "characters": self.characters,
            "skipped": dict(sorted((+Counter(self.skipped)).items())),
        }


def document_id(text: str) -> str:
    """The first 128 bits of the text's SHA-256, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def build(sources: Sequence[TextSource], out: Path, *, document_chars: int = 2000) -> dict[str, Any]:
    """Reads every source and writes `out` (Parquet) with its report beside it (`.json`), each whole or not at all.

    Returns the report: per source the documents, characters, licence and what was skipped and why.
    Raises CorpusError when no source yields a document.
    """
    seen: set[str] = set()
    rows: list[tuple[str, str, str, str]] = []
    reports = []
    for source in sources:
        report = SourceReport(source.name, source.stratum, source.licence)
        found: dict[str, tuple[str, str]] = {}
        for stratum, text in _pieces(source, report, document_chars):
            doc_id = document_id(text)
            if doc_id in seen:
                report.skipped["duplicate"] += 1
                continue
            seen.add(doc_id)
            found[doc_id] = stratum, text
        # The smallest hashes are a fair sample; the first files of a folder would not be.
        kept = sorted(found)[: source.max_documents]
        report.skipped["over max_documents"] += len(found) - len(kept)
        taken = [(doc_id, found[doc_id][0], source.name, found[doc_id][1]) for doc_id in kept]
        reports += _by_stratum(report, taken)
        rows += taken
    if not rows:
        listed = "; ".join(f"{r.name}: {dict(+r.skipped) or 'nothing there'}" for r in reports)
        raise CorpusError(f"The corpus is empty. {listed}. Files that are read: {', '.join(READABLE)}.")
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("doc_id")
    return write(frame, out, reports)


def write(frame: pl.DataFrame, out: Path, reports: Iterable[SourceReport]) -> dict[str, Any]:
    """Writes documents and report; the report carries the Parquet file's sha256."""
    with replace_atomically(out) as temporary:
        frame.write_parquet(temporary, compression="zstd", statistics=False, row_group_size=ROW_GROUP)
    report = {
        "corpus_sha256": file_sha256(out),
        "documents": frame.height,
        "sources": [entry.to_json() for entry in reports],
    }
    with replace_atomically(out.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report


def read(path: Path) -> pl.DataFrame:
    """The documents of a corpus, in order of doc_id."""
    try:
        return pl.read_parquet(path, columns=list(SCHEMA))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CorpusError(
            f"{path} is not a corpus: {error}. Build it with: neuroscope corpus build"
        ) from error


def _by_stratum(report: SourceReport, rows: Sequence[tuple[str, str, str, str]]) -> list[SourceReport]:
    """A source's report, and a second one for conversations found among its texts."""
    talks = replace(report, stratum=CHAT, skipped=Counter())
    for _, stratum, _, text in rows:
        entry = report if stratum == report.stratum else talks
        entry.documents += 1
        entry.characters += len(text)
    return [report, talks] if talks.documents else [report]


def _pieces(source: TextSource, report: SourceReport, document_chars: int) -> Iterator[tuple[str, str]]:
    """Stratum and text of each document."""
    if source.format not in READERS:
        raise CorpusError(
            f"Source {source.name!r} has the unknown format {source.format!r}. Accepted: {', '.join(READERS)}."
        )
    for found in READERS[source.format](source.path):
        if isinstance(found, Skipped):
            report.skipped[found.reason] += 1
            continue
        talk = isinstance(found, Conversation)
        text = found.text if isinstance(found, Conversation) else found
        # Lone surrogates cannot be encoded, by the database or by anyone.
        text = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")
        if not text.strip():
            report.skipped["empty"] += 1
        for piece in [text] if talk else split(text, document_chars):
            if len(piece) < MIN_CHARS:
                report.skipped["too short"] += 1
            else:
                yield CHAT if talk else source.stratum, piece


def split(text: str, limit: int) -> Iterator[str]:
    """Cuts a text into pieces of at most `limit` characters: at a blank line, else a line, else a space, else anywhere.

    Nothing but the white space around a cut is lost; indentation is kept.
    """
    text = text.strip("\n").rstrip()
    start = 0
    while len(text) - start > limit:
        half, end = start + limit // 2, start + limit
        marks = ((mark, text.rfind(mark, half, end)) for mark in ("\n\n", "\n", " "))
        mark, cut = next(((mark, at) for mark, at in marks if at > start), ("", end))
        yield text[start:cut].rstrip()
        start = cut + len(mark)
        while text.startswith("\n", start):
            start += 1
    if text[start:].strip():
        yield text[start:]
