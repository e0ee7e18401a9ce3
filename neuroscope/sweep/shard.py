"""Does those of a shard's chunks that no earlier run has done.

A chunk's file appears whole or not at all, so a killed shard does at most one chunk again. Loading model
and SAE is `stage`'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from neuroscope.errors import ArtefactError
from neuroscope.manifest import Fingerprint
from neuroscope.models.chat import ChatTokenizer
from neuroscope.sweep.activations import BatchLimit, ChunkActivations, Instrument, measure
from neuroscope.sweep.chunk_file import ChunkFile, write_chunk
from neuroscope.sweep.collect import collect
from neuroscope.sweep.documents import count_characters, read_texts
from neuroscope.sweep.heap import keep_freed_memory
from neuroscope.sweep.overlap import Behind, ahead
from neuroscope.sweep.plan import Chunk, SweepOptions, chunk_key
from neuroscope.sweep.progress import token_bar
from neuroscope.sweep.windows import ChunkTokens, tokenize

log = logging.getLogger(__name__)


def chunk_path(folder: Path, chunk: Chunk, fingerprint: Fingerprint, options: SweepOptions) -> Path:
    """Where a chunk's partial results are cached."""
    return folder / f"{chunk_key(chunk, fingerprint, options)}.npz"


def sweep_chunks(
    chunks: Sequence[Chunk],
    corpus: Path,
    instrument: Instrument,
    chat: ChatTokenizer,
    *,
    fingerprint: Fingerprint,
    options: SweepOptions,
    folder: Path,
    progress: bool = True,
    title: str = "sweep",
) -> dict[str, Any]:
    """Make the files of `chunks` in `folder`, but for those already there; returns what was done."""
    keep_freed_memory()
    paths = {chunk.id: chunk_path(folder, chunk, fingerprint, options) for chunk in chunks}
    todo = [chunk for chunk in chunks if not is_done(paths[chunk.id])]
    characters = count_characters(corpus, todo) if todo else 0
    limit = BatchLimit(options.batch)
    tokens_run = 0
    tokenized = (
        (chunk, texts, _tokens(chat, chunk, texts, options)) for chunk, texts in read_texts(corpus, todo)
    )
    with (
        token_bar(characters, title, visible=progress) as bar,
        Behind() as behind,
        closing(ahead(tokenized)) as prepared,
    ):
        for chunk, texts, tokens in prepared:
            bar.expect(sum(map(len, texts)), len(tokens))
            acts = measure(tokens, instrument, options, limit, bar.advance)
            notes = {
                "id": chunk.id,
                "tokens": len(tokens),
                "outliers": acts.outliers,
                "quarantined": [chunk.doc_ids[row] for row in acts.quarantined.tolist()],
                "batch": min(limit.rows, options.batch),
            }
            write = partial(
                _write, paths[chunk.id], chunk, tokens, acts, instrument.sae.d_sae, options, notes
            )
            behind.do(write)
            tokens_run += len(tokens)
            bar.align()
    return {
        "chunks": [{"id": name, "file": path.name} for name, path in paths.items()],
        "computed": len(todo),
        "tokens": tokens_run,
        "batch": limit.rows,
    }


def _tokens(chat: ChatTokenizer, chunk: Chunk, texts: Sequence[str], options: SweepOptions) -> ChunkTokens:
    return tokenize(chat, chunk.stratum, texts, bos=options.bos)


def _write(
    path: Path,
    chunk: Chunk,
    tokens: ChunkTokens,
    acts: ChunkActivations,
    d_sae: int,
    options: SweepOptions,
    notes: Mapping[str, Any],
) -> None:
    write_chunk(path, collect(chunk, tokens, acts, d_sae, options), notes)


def is_done(path: Path) -> bool:
    """Whether a chunk's file is there and can be read; a damaged one is made anew."""
    if not path.exists():
        return False
    try:
        with ChunkFile(path) as file:
            file.notes()
    except ArtefactError as error:
        log.warning("%s", error)
        return False
    return True
