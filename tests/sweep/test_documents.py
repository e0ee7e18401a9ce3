"""Texts come chunk by chunk, in order, a few chunks at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_sweep import make_documents

from neuroscope.errors import CorpusError
from neuroscope.sweep import documents as module
from neuroscope.sweep.documents import count_characters, read_index, read_texts
from neuroscope.sweep.plan import plan_chunks


@pytest.mark.parametrize("rows", [1, 7, 8192])
@pytest.mark.parametrize("at_once", [1, 3, 32])
def test_texts_are_those_of_the_chunks_documents(
    tmp_path: Path, at_once: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNKS_AT_ONCE", at_once)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows)
    corpus = tmp_path / "corpus.parquet"
    frame = make_documents()
    frame.write_parquet(corpus)
    text_of = dict(frame.select("doc_id", "text").iter_rows())
    chunks = plan_chunks(read_index(corpus), 40, 8)
    found = list(read_texts(corpus, chunks))
    assert [chunk for chunk, _ in found] == chunks
    for chunk, texts in found:
        assert texts == [text_of[doc_id] for doc_id in chunk.doc_ids]
    assert count_characters(corpus, chunks) == sum(len(text) for _, texts in found for text in texts)


@pytest.mark.parametrize("content", [b"", b"<html>", b"PAR1"])
def test_a_file_that_is_no_corpus_names_the_command_that_builds_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "corpus.parquet"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"corpus\.parquet is not a corpus.*neuroscope corpus build"):
        read_index(path)
    with pytest.raises(CorpusError, match="is not a corpus"):
        read_index(tmp_path / "absent.parquet")
