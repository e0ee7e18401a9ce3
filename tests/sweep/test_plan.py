"""The plan: every stratum is heard, whole chunks, and more samples only add."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tiny_sweep import make_fingerprint

from neuroscope.errors import ConfigError, CorpusError
from neuroscope.sweep.plan import Chunk, SweepOptions, chunk_key, plan_chunks


def corpus_of(**sizes: int) -> pl.DataFrame:
    """Documents with ids in random order, `sizes` per stratum."""
    generator = np.random.default_rng(0)
    rows = [(generator.bytes(16).hex(), stratum) for stratum, count in sizes.items() for _ in range(count)]
    return pl.DataFrame(rows, schema=["doc_id", "stratum"], orient="row").sort("doc_id")


def documents_of(chunks: list[Chunk]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for chunk in chunks:
        counts[chunk.stratum] = counts.get(chunk.stratum, 0) + len(chunk.doc_ids)
    return counts


def test_strata_are_heard_alike_in_whole_chunks() -> None:
    chunks = plan_chunks(corpus_of(code=1000, encyclopedia=1000), 100, 10)
    assert documents_of(chunks) == {"code": 50, "encyclopedia": 50}
    assert documents_of(plan_chunks(corpus_of(code=1000, encyclopedia=1000), 101, 10)) == {
        "code": 60,
        "encyclopedia": 50,
    }


def test_a_stratum_short_of_documents_gives_all_it_has_and_the_rest_comes_from_others() -> None:
    chunks = plan_chunks(corpus_of(chat=7, code=1000, encyclopedia=1000), 107, 10)
    assert documents_of(chunks) == {"chat": 7, "code": 50, "encyclopedia": 50}


def test_shares_weigh_strata() -> None:
    chunks = plan_chunks(corpus_of(code=1000, encyclopedia=1000), 400, 1, {"code": 1, "encyclopedia": 3})
    assert documents_of(chunks) == {"code": 100, "encyclopedia": 300}
    only = plan_chunks(corpus_of(code=50, encyclopedia=50), 80, 10, {"code": 1, "encyclopedia": 0})
    assert documents_of(only) == {"code": 50}


@pytest.mark.parametrize("seed", range(5))
def test_more_samples_add_chunks_after_those_that_were_there(seed: int) -> None:
    """Largest remainders fail here: a total that grows can take a document away from a stratum."""
    generator = np.random.default_rng(seed)
    sizes = {f"s{number}": int(generator.integers(1, 80)) for number in range(5)}
    shares = {name: float(generator.random()) + 0.01 for name in sizes}
    documents = corpus_of(**sizes)
    before: list[Chunk] = []
    for samples in range(1, sum(sizes.values()) + 3, 3):
        chunks = plan_chunks(documents, samples, 4, shares)
        assert chunks[: len(before)] == before
        assert sum(documents_of(chunks).values()) >= min(samples, documents.height)
        before = chunks
    assert documents_of(before) == sizes


def test_a_chunk_is_a_range_of_one_stratum_in_order_of_doc_id() -> None:
    documents = corpus_of(code=25, chat=3)
    chunks = plan_chunks(documents.sample(fraction=1, shuffle=True, seed=1), 1000, 10)
    code = documents.filter(pl.col("stratum") == "code")["doc_id"].to_list()
    by_id = {chunk.id: chunk.doc_ids for chunk in chunks}
    assert by_id["code-00000"] == tuple(code[:10])
    assert by_id["code-00002"] == tuple(code[20:])
    assert sorted(by_id) == ["chat-00000", "code-00000", "code-00001", "code-00002"]


def test_no_documents_name_the_command_that_builds_a_corpus() -> None:
    with pytest.raises(CorpusError, match="neuroscope corpus build"):
        plan_chunks(corpus_of(code=1).head(0), 10, 4)


def test_a_chunks_key_changes_with_all_that_its_result_depends_on_and_nothing_else() -> None:
    chunk = Chunk("code-00000", "code", ("aa", "bb"))
    key = chunk_key(chunk, make_fingerprint(), SweepOptions())
    assert key == chunk_key(chunk, make_fingerprint(corpus_sha256="2" * 64), SweepOptions())
    assert key == chunk_key(chunk, make_fingerprint(sae="/elsewhere/params.npz"), SweepOptions())
    others = [
        chunk_key(Chunk("code-00000", "code", ("aa",)), make_fingerprint(), SweepOptions()),
        chunk_key(Chunk("chat-00000", "chat", ("aa", "bb")), make_fingerprint(), SweepOptions()),
        chunk_key(chunk, make_fingerprint(sae_sha256="3" * 64), SweepOptions()),
        chunk_key(chunk, make_fingerprint(sweep={"threads": 2}), SweepOptions()),
        chunk_key(chunk, make_fingerprint(), SweepOptions(window=64)),
    ]
    assert len({key, *others}) == 6


def test_a_window_too_small_for_bos_and_a_token_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.window is 1"):
        SweepOptions(window=1)
