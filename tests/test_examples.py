"""Which firings become examples: hashes that never move, collectors that forget nothing they should keep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from fakes.tiny import D_SAE
from tiny_sweep import TinySweep, make_fingerprint

from neuroscope.corpus import CHAT
from neuroscope.examples import (
    KEY_BITS,
    Collector,
    Firings,
    activation_key,
    document_key,
    firing_hash,
    gather_windows,
    is_held_out,
    largest_per_document,
    rank_in_group,
    smallest_per_feature,
    splitmix64,
    spread_over_quantiles,
    window_rows,
)
from neuroscope.sweep.merging import examples_frame, merge_chunks
from neuroscope.sweep.plan import SweepOptions, plan_chunks
from neuroscope.sweep.shard import chunk_path, sweep_chunks
from neuroscope.sweep.windows import tokenize

FINGERPRINT = make_fingerprint()
OPTIONS = SweepOptions(window=32, batch=4, per_feature=5, sampled=3, held_out=6, pool=30)


def random_firings(count: int, d_sae: int, seed: int = 0, chunk: int = 0) -> Firings:
    generator = np.random.default_rng(seed)
    return Firings(
        generator.integers(0, d_sae, count).astype(np.int32),
        generator.integers(0, 2**KEY_BITS, count).astype(np.uint64),
        generator.random(count).astype(np.float32),
        np.arange(count, dtype=np.int32),
        np.full(count, chunk, np.int32),
    )


@pytest.fixture(scope="module")
def tiny(tiny_llama_path: Path, tiny_sae_path: Path) -> TinySweep:
    torch.set_num_threads(1)
    return TinySweep(tiny_llama_path, tiny_sae_path)


def test_max_activating_collection(tiny: TinySweep, tmp_path: Path) -> None:
    """A corpus through model and SAE; examples against the slow version that looks at every token."""
    chunks = plan_chunks(tiny.documents, 60, 8)
    corpus = tmp_path / "corpus.parquet"
    tiny.documents.write_parquet(corpus)
    sweep_chunks(
        chunks,
        corpus,
        tiny.instrument,
        tiny.chat,
        fingerprint=FINGERPRINT,
        options=OPTIONS,
        folder=tmp_path / "chunks",
        progress=False,
    )
    paths = [chunk_path(tmp_path / "chunks", chunk, FINGERPRINT, OPTIONS) for chunk in chunks]
    examples = examples_frame(merge_chunks(chunks, paths, D_SAE, OPTIONS), chunks, paths)
    tops = examples.filter(pl.col("kind") == "top")
    expected = largest_by_looking_at_everything(tiny, {d for chunk in chunks for d in chunk.doc_ids})
    for (feature,), rows in tops.partition_by("feature", as_dict=True).items():
        activations = rows["activation"].to_list()
        assert activations == sorted(activations, reverse=True)
        assert len(rows) <= OPTIONS.per_feature
        assert rows["doc_id"].n_unique() == len(rows)
        assert rows["rank"].to_list() == list(range(len(rows)))
        assert activations == pytest.approx(expected[feature], rel=1e-4)
    windows = examples["window"].to_numpy()
    assert windows.shape[1] == 24 + 1  # the token, and the specification's 24 around it
    assert (windows[:, 12] == examples["token_id"].to_numpy()).all()
    assert not any(map(is_held_out, tops["doc_id"]))
    assert all(map(is_held_out, examples.filter(pl.col("kind") == "held_out")["doc_id"]))


def largest_by_looking_at_everything(tiny: TinySweep, doc_ids: set[str]) -> dict[int, list[float]]:
    """Per feature, the largest activation of each labelling document, largest first, at most five."""
    best = []
    for doc_id, stratum, text in tiny.documents.select("doc_id", "stratum", "text").iter_rows():
        if doc_id not in doc_ids or is_held_out(doc_id):
            continue
        tokens = tokenize(tiny.chat, stratum, [text], bos=True)
        acts = np.zeros((0, D_SAE), np.float32)
        for start in range(0, len(tokens), OPTIONS.window - 1):
            piece = [tiny.chat.bos_id, *tokens.ids[start : start + OPTIONS.window - 1].tolist()]
            ids = torch.tensor([piece])
            residual = tiny.instrument.backend.residuals(ids, torch.ones_like(ids, dtype=torch.bool))
            acts = np.concatenate([acts, tiny.instrument.sae.encode(residual[0, 1:]).numpy()])
        best.append(acts[tokens.segment >= 0].max(axis=0, initial=0))
    table = np.sort(np.stack(best), axis=0)[::-1]
    return {f: [a for a in table[:5, f].tolist() if a > 0] for f in range(D_SAE)}


def test_splitmix64_gives_the_published_numbers() -> None:
    """The first outputs for seed 0 of the reference implementation by Vigna."""
    gamma = 0x9E3779B97F4A7C15
    states = np.array([0, gamma, (2 * gamma) % 2**64], np.uint64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert splitmix64(states).tolist() == expected


def test_hashes_do_not_depend_on_pythons_hash_seed() -> None:
    code = (
        "import numpy as np\n"
        "from neuroscope.examples import *\n"
        "key = np.array([document_key('abc')], np.uint64)\n"
        "print(key[0], firing_hash(7, np.array([3]), key, np.array([11]))[0], is_held_out('abc'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    key = np.array([document_key("abc")], np.uint64)
    own = firing_hash(7, np.array([3]), key, np.array([11]))[0]
    assert outputs == {f"{key[0]} {own} {is_held_out('abc')}\n"}


def test_a_fifth_of_the_documents_is_held_out_for_ever() -> None:
    ids = [f"{number:032x}" for number in range(5000)]
    share = sum(map(is_held_out, ids)) / len(ids)
    assert share == pytest.approx(0.2, abs=0.02)
    assert [is_held_out(doc_id) for doc_id in ids[:10]] == [is_held_out(doc_id, 0.2) for doc_id in ids[:10]]
    assert not any(is_held_out(doc_id, 0.0) for doc_id in ids)
    assert all(is_held_out(doc_id, 1.0) for doc_id in ids)


def test_firing_hashes_spread_evenly_and_change_with_each_ingredient() -> None:
    features, positions = np.arange(1000) % 10, np.arange(1000)
    documents = np.full(1000, 12345, np.uint64)
    keys = firing_hash(0, features, documents, positions)
    assert len(np.unique(keys)) == 1000
    assert (keys < 2**KEY_BITS).all()
    assert keys.mean() / 2**KEY_BITS == pytest.approx(0.5, abs=0.05)
    others = [
        firing_hash(1, features, documents, positions),
        firing_hash(0, features + 1, documents, positions),
        firing_hash(0, features, documents + np.uint64(1), positions),
        firing_hash(0, features, documents, positions + 1),
    ]
    assert all((keys != other).all() for other in others)


def test_activation_keys_order_activations_from_the_largest() -> None:
    activations = np.array([1e-30, 0.5, 3.0, 3.0000002, 1e30], np.float32)
    assert np.argsort(activation_key(activations)).tolist() == [4, 3, 2, 1, 0]
    assert (activation_key(activations) < 2**KEY_BITS).all()


def test_the_smallest_keys_of_each_feature_are_kept_in_order() -> None:
    firings = random_firings(500, 7)
    kept = smallest_per_feature(firings.feature, firings.key, 4)
    slow = []
    for feature in range(7):
        rows = np.flatnonzero(firings.feature == feature)
        slow += sorted(rows.tolist(), key=lambda row: firings.key[row])[:4]
    assert kept.tolist() == slow


def test_equal_activations_of_a_document_count_once_and_the_earliest_wins() -> None:
    features = np.array([0, 0, 0, 1, 0])
    documents = np.array([0, 0, 1, 0, 0])
    activations = np.array([2.0, 5.0, 1.0, 4.0, 5.0], np.float32)
    assert sorted(largest_per_document(features, documents, activations).tolist()) == [1, 2, 3]


def test_ranks_count_within_runs() -> None:
    assert rank_in_group(np.array([3, 3, 5, 5, 5, 9])).tolist() == [0, 1, 0, 1, 2, 0]
    assert rank_in_group(np.array([], np.int32)).tolist() == []


@pytest.mark.parametrize("cuts", [[], [1, 2, 3], [250], list(range(10, 500, 10))])
def test_a_collector_keeps_the_same_however_firings_arrive(cuts: list[int], monkeypatch) -> None:
    monkeypatch.setattr(Collector, "PATIENCE", 37)
    everything = random_firings(500, 7)
    collector = Collector(6)
    for rows in np.split(np.arange(500), cuts):
        collector.add(everything.take(rows))
    kept = collector.finish()
    expected = everything.take(smallest_per_feature(everything.feature, everything.key, 6))
    assert kept.token.tolist() == expected.token.tolist()


def test_a_collector_does_not_grow_with_the_corpus(monkeypatch) -> None:
    monkeypatch.setattr(Collector, "PATIENCE", 100)
    d_sae, k, per_chunk = 20, 5, 400
    collector = Collector(k)
    sizes = []
    for chunk in range(300):
        collector.add(random_firings(per_chunk, d_sae, seed=chunk, chunk=chunk))
        sizes.append(len(collector))
    assert max(sizes) <= k * d_sae + max(k * d_sae, Collector.PATIENCE) + per_chunk
    assert max(sizes[-50:]) <= max(sizes[:50])
    assert len(collector.finish()) == k * d_sae


def test_held_out_examples_are_spread_over_the_quantiles_of_activation() -> None:
    features = np.repeat([4, 9, 11], [200, 3, 50])
    activations = np.random.default_rng(0).permutation(np.arange(1, 254)).astype(np.float32)
    chosen = spread_over_quantiles(features, activations, 50)
    assert [chosen[features == f].sum() for f in (4, 9, 11)] == [50, 3, 50]
    order = np.sort(activations[:200])
    ranks = np.searchsorted(order, np.sort(activations[:200][chosen[:200]]))
    assert (np.diff(ranks) == 4).all()  # every fourth of two hundred


def test_windows_end_where_their_text_ends() -> None:
    ids = np.arange(100, 160, dtype=np.int32)
    segments = np.repeat([0, -1, 1], [20, 5, 35])
    rows = window_rows(np.array([0, 19, 25, 40]), segments)
    windows = gather_windows(ids, rows)
    assert windows[:, 12].tolist() == [100, 119, 125, 140]
    assert windows[0].tolist() == [-1] * 12 + list(range(100, 113))
    assert windows[1].tolist() == list(range(107, 120)) + [-1] * 12  # scaffold follows
    assert windows[2].tolist() == [-1] * 12 + list(range(125, 138))
    assert windows[3].tolist() == list(range(128, 153))


def test_windows_of_a_conversation_stay_within_one_message(tiny: TinySweep) -> None:
    text = '[{"role": "user", "content": "cats"}, {"role": "assistant", "content": "dogs"}]'
    tokens = tokenize(tiny.chat, CHAT, [text], bos=True)
    first = int(np.flatnonzero(tokens.segment == 0)[0])
    window = gather_windows(tokens.ids, window_rows(np.array([first]), tokens.segment))[0]
    assert tiny.tokenizer.decode(window[window >= 0]) == "cats"


def test_a_million_features_in_many_documents_are_told_apart_too() -> None:
    features = np.array([2**20 - 1, 2**20 - 1, 2**20 - 2, 2**20 - 1])
    documents = np.array([2**13, 2**13, 2**13, 2**13 - 1])
    activations = np.array([1.0, 3.0, 5.0, 2.0], np.float32)
    assert largest_per_document(features, documents, activations).tolist() == [2, 3, 1]
