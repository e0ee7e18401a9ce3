"""The pipeline's calls that make the corpus: documents from the sources, conversations from the model, both joined.

Settings and files in, files out; how texts are read is `corpus`' business.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope import corpus
from neuroscope.corpus import SourceReport, TextSource
from neuroscope.errors import CorpusError
from neuroscope.manifest import SourcesLock
from neuroscope.settings import CorpusSource, Settings
from neuroscope.sources import cache_dir, replace_atomically

CHAT_PARTS = "chat"
"""Folder in the results that keeps finished batches of conversations."""


def build_documents(settings: Settings, *, output: Path, progress: bool = True) -> dict[str, Any]:
    """Fetches every source and writes the documents with their report beside them; returns the report."""
    wanted = settings.corpus
    if wanted.path is not None:
        path = Path(wanted.path).expanduser()
        sources = [TextSource("own", "own", path, "files", licence="the user's own")]
    else:
        lock = SourcesLock(settings.results / "sources.lock.json")
        sources = [_fetched(source, lock, progress) for source in wanted.sources]
    return corpus.build(sources, output, document_chars=wanted.document_chars)


def _fetched(source: CorpusSource, lock: SourcesLock, progress: bool) -> TextSource:
    path = lock.resolve(source.source, progress=progress).path
    return TextSource(source.name, source.stratum, path, source.format, source.licence, source.max_documents)


def build_chat(settings: Settings, *, documents: Path, output: Path) -> None:
    """Lets the pairing's own model answer questions about the documents; an empty table when none are wanted.

    Finished batches are kept in the cache, so a killed run goes on and the same plan is never sampled twice.
    """
    wanted = settings.corpus.chat
    if wanted is None:
        with replace_atomically(output) as temporary:
            pl.DataFrame(schema=corpus.SCHEMA).write_parquet(temporary)
        return
    # torch and transformers take seconds to import: only where a model is wanted.
    from neuroscope.corpus.chat import ChatPlan, generate
    from neuroscope.models.loading import load_model

    model, tokenizer = load_model(
        SourcesLock(settings.results / "sources.lock.json").resolve(settings.pairing.model).path,
        device=settings.device,
        dtype=settings.pairing.dtype,
    )
    plan = ChatPlan(
        wanted.documents, wanted.max_tokens, wanted.temperature, wanted.top_k, wanted.seed, wanted.batch
    )
    generate(model, tokenizer, corpus.read(documents), plan, output, parts=cache_dir() / CHAT_PARTS)


def join(settings: Settings, *, documents: Path, chat: Path, output: Path) -> dict[str, Any]:
    """The whole corpus: documents and conversations in order of doc_id, with one report."""
    try:
        found = json.loads(documents.with_suffix(".json").read_text(encoding="utf-8"))["sources"]
    except (OSError, ValueError, KeyError) as error:
        raise CorpusError(
            f"{documents} has no report beside it. Build it with: neuroscope corpus build"
        ) from error
    frame, conversations = corpus.read(documents), corpus.read(chat)
    reports = [SourceReport(**report) for report in found]
    if conversations.height:
        reports.append(
            SourceReport(
                "chat",
                "chat",
                f"written by {settings.pairing.model.split('#')[0]} ({settings.pairing.licence})",
                conversations.height,
                int(conversations["text"].str.len_chars().sum()),
            )
        )
    whole = pl.concat([frame, conversations]).unique("doc_id").sort("doc_id")
    return corpus.write(whole, output, reports)
