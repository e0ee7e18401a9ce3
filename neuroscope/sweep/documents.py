"""Reads a corpus without holding it: ids and strata for the plan, texts only for the chunks at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from neuroscope.errors import CorpusError
from neuroscope.sweep.plan import Chunk

CHUNKS_AT_ONCE = 32
"""Chunks whose texts are in memory together; each reading goes through the whole file once."""


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
    wanted = [doc_id for chunk in chunks for doc_id in chunk.doc_ids]
    found = pl.scan_parquet(corpus).filter(pl.col("doc_id").is_in(wanted))
    return int(found.select(pl.col("text").str.len_chars().sum()).collect().item())


def read_texts(corpus: Path, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[str]]]:
    """Each chunk with the texts of its documents, in order."""
    for first in range(0, len(chunks), CHUNKS_AT_ONCE):
        group = chunks[first : first + CHUNKS_AT_ONCE]
        wanted = [doc_id for chunk in group for doc_id in chunk.doc_ids]
        found = pl.scan_parquet(corpus).filter(pl.col("doc_id").is_in(wanted)).select("doc_id", "text")
        text_of = dict(found.collect().iter_rows())
        for chunk in group:
            yield chunk, [text_of[doc_id] for doc_id in chunk.doc_ids]
