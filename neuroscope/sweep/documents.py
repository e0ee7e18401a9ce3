"""Reads a corpus without holding it: ids and strata for the plan, texts only for the chunks at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from neuroscope.errors import CorpusError
from neuroscope.sweep.plan import Chunk

CHUNKS_AT_ONCE = 32
"""Chunks whose texts are in memory together; each reading goes through the whole file once."""

ROWS_AT_ONCE = 8192
"""Documents of a corpus that are unpacked together: of 150 MB of text, 20 are in memory and not 240."""


def read_index(corpus: Path) -> pl.DataFrame:
    """doc_id and stratum of every document. Raises CorpusError for a file that is not a corpus."""
    try:
        return pl.read_parquet(corpus, columns=["doc_id", "stratum"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CorpusError(
            f"{corpus} is not a corpus: {error}. Build it with: neuroscope corpus build"
        ) from error


def count_characters(corpus: Path, chunks: Sequence[Chunk]) -> int:
    """Characters of the chunks' documents."""
    return sum(int(found["text"].str.len_chars().sum()) for found in _documents(corpus, chunks))


def read_texts(corpus: Path, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[str]]]:
    """Each chunk with the texts of its documents, in order."""
    for first in range(0, len(chunks), CHUNKS_AT_ONCE):
        group = chunks[first : first + CHUNKS_AT_ONCE]
        text_of = {doc_id: text for found in _documents(corpus, group) for doc_id, text in found.iter_rows()}
        for chunk in group:
            yield chunk, [text_of[doc_id] for doc_id in chunk.doc_ids]


def _documents(corpus: Path, chunks: Sequence[Chunk]) -> Iterator[pl.DataFrame]:
    """doc_id and text of the chunks' documents, a stretch of the file after the other."""
    wanted = pl.Series([doc_id for chunk in chunks for doc_id in chunk.doc_ids], dtype=pl.String)
    rows = pl.scan_parquet(corpus).select("doc_id", "text")
    height = int(pl.scan_parquet(corpus).select(pl.len()).collect().item())
    for start in range(0, height, ROWS_AT_ONCE):
        stretch = rows.slice(start, ROWS_AT_ONCE)
        yield stretch.filter(pl.col("doc_id").is_in(wanted.implode())).collect()
