"""The sweep from files to files: the same bytes however it is cut, killed and repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from fakes.tiny import D_SAE
from tiny_sweep import TinySweep, make_documents

from neuroscope.errors import ArtefactError, ConfigError, ModelError
from neuroscope.examples import is_held_out
from neuroscope.settings import Settings
from neuroscope.sweep import merge, planned, run_shard

ARTEFACTS = ("stats.parquet", "examples.parquet", "pool.parquet", "neighbours.parquet", "sweep.json")


@pytest.fixture(scope="module")
def tiny(tiny_llama_path: Path, tiny_sae_path: Path) -> TinySweep:
    torch.set_num_threads(1)
    return TinySweep(tiny_llama_path, tiny_sae_path)


@pytest.fixture(scope="module")
def corpus(tiny: TinySweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.parquet"
    tiny.documents.write_parquet(path)
    return path


def shard_path(settings: Settings, shard: int) -> Path:
    return settings.results / "shards" / f"{shard}.json"


def sweep(settings: Settings, tiny: TinySweep, corpus: Path, *, shards: int = 1, **options: Any) -> None:
    for shard in range(shards):
        run_shard(
            settings,
            corpus=corpus,
            sae=tiny.sae_path,
            output=shard_path(settings, shard),
            shard=shard,
            shards=shards,
            progress=False,
            **options,
        )


def merge_into(settings: Settings, corpus: Path, *, shards: int = 1, **options: Any) -> Path:
    folder = settings.results
    merge(
        settings,
        corpus=corpus,
        shards=[shard_path(settings, shard) for shard in range(shards)],
        **{name.partition(".")[0]: folder / name for name in ARTEFACTS[:4]},
        report=folder / "sweep.json",
        **options,
    )
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ARTEFACTS}


@pytest.fixture(scope="module")
def swept(tiny: TinySweep, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artefacts of one uninterrupted shard."""
    settings = tiny.settings(tmp_path_factory.mktemp("one"))
    sweep(settings, tiny, corpus)
    return merge_into(settings, corpus, stats_json=settings.results / "stats.json")


def test_seven_shards_make_the_same_bytes_as_one(
    tiny: TinySweep, corpus: Path, swept: Path, tmp_path: Path
) -> None:
    settings = tiny.settings(tmp_path)
    sweep(settings, tiny, corpus, shards=7)
    assert bytes_of(merge_into(settings, corpus, shards=7)) == bytes_of(swept)


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tiny_sweep import TinySweep
import test_sweep
tiny = TinySweep(Path(sys.argv[2]), Path(sys.argv[3]))
test_sweep.sweep(tiny.settings(Path(sys.argv[4])), tiny, Path(sys.argv[5]))
"""


def test_a_sweep_killed_at_any_moment_ends_with_the_same_bytes(
    tiny: TinySweep, corpus: Path, swept: Path, tmp_path: Path
) -> None:
    settings = tiny.settings(tmp_path)
    chunks = settings.results / "chunks"
    arguments = [Path(__file__).parent, tiny.model_path, tiny.sae_path, tmp_path, corpus]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: len(list(chunks.glob("*.npz"))) >= 3 or process.poll() is not None)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = {path: path.stat().st_mtime_ns for path in chunks.glob("*.npz")}
    total = json.loads((swept / "sweep.json").read_text())["chunks"]
    assert 3 <= len(finished) < total
    sweep(settings, tiny, corpus)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished  # none was made again
    assert json.loads(shard_path(settings, 0).read_text())["computed"] == total - len(finished)
    assert bytes_of(merge_into(settings, corpus)) == bytes_of(swept)


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.002)


def test_a_larger_sample_only_adds_chunks(tiny: TinySweep, corpus: Path, tmp_path: Path) -> None:
    settings = tiny.settings(tmp_path)
    sweep(settings, tiny, corpus, samples=20)
    before = {path.name for path in (settings.results / "chunks").iterdir()}
    sweep(settings, tiny, corpus, samples=60)
    after = {path.name for path in (settings.results / "chunks").iterdir()}
    assert before < after
    report = json.loads(shard_path(settings, 0).read_text())
    assert report["computed"] == len(after) - len(before)


def test_a_corpus_that_grows_keeps_the_chunks_it_still_has(
    tiny: TinySweep, corpus: Path, tmp_path: Path
) -> None:
    settings = tiny.settings(tmp_path)
    sweep(settings, tiny, corpus, samples=60)
    more = make_documents(10, seed=9).with_columns(stratum=pl.lit("poems"))
    larger = tmp_path / "larger.parquet"
    pl.concat([tiny.documents, more]).unique("doc_id").sort("doc_id").write_parquet(larger)
    sweep(settings, tiny, larger, samples=60)
    report = json.loads(shard_path(settings, 0).read_text())
    assert [chunk["id"] for chunk in report["chunks"] if chunk["id"].startswith("poems")]
    assert report["computed"] < len(report["chunks"])


def test_a_damaged_chunk_is_made_again(tiny: TinySweep, corpus: Path, swept: Path, tmp_path: Path) -> None:
    settings = tiny.settings(tmp_path)
    sweep(settings, tiny, corpus)
    broken, *_ = (settings.results / "chunks").iterdir()
    broken.write_bytes(broken.read_bytes()[:-200])
    with pytest.raises(ArtefactError, match=f"{broken.name}.*run the sweep again with: snakemake"):
        merge_into(settings, corpus)
    sweep(settings, tiny, corpus)
    assert bytes_of(merge_into(settings, corpus)) == bytes_of(swept)


def test_a_failing_write_leaves_neither_half_a_chunk_nor_the_old_one_broken(
    tiny: TinySweep, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny.settings(tmp_path)

    def full_disk(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        sweep(settings, tiny, corpus)
    assert not list((settings.results / "chunks").iterdir())


def test_other_batch_sizes_agree_but_for_flips_at_the_threshold(
    tiny: TinySweep, corpus: Path, swept: Path, tmp_path: Path
) -> None:
    """Padding into another batch moves residuals by some 1e-6, so a feature at its threshold may flip.

    Stated tolerance: relative 1e-4 on the sum of a feature's activations, beyond its flips; flips at most 1 in
    10,000 firings.
    """
    settings = tiny.settings(tmp_path, **{"sweep.batch": 16})
    sweep(settings, tiny, corpus)
    other = pl.read_parquet(merge_into(settings, corpus) / "stats.parquet")
    one = pl.read_parquet(swept / "stats.parquet")
    assert other["n_tokens"].equals(one["n_tokens"])
    flips = (other["n_fired"] - one["n_fired"]).abs()
    assert flips.sum() <= one["n_fired"].sum() / 10_000
    slack = 2.5 * flips.to_numpy()  # a flipped activation is about its threshold, 2
    difference = np.abs((other["sum"] - one["sum"]).to_numpy())
    assert (difference <= 1e-4 * one["sum"].to_numpy() + slack).all()


def test_statistics_are_those_of_every_content_token(tiny: TinySweep, corpus: Path, swept: Path) -> None:
    """Against the slow version: each window alone through the model, dense activations, no chunk files."""
    settings = tiny.settings(swept)
    doc_ids = {doc_id for chunk in planned(settings, tiny.documents) for doc_id in chunk.doc_ids}
    text = tiny.documents.filter(pl.col("stratum") == "code", pl.col("doc_id").is_in(doc_ids))["text"]
    acts = [np.zeros((0, D_SAE), np.float32)]
    for document in text:
        ids = tiny.tokenizer(document, add_special_tokens=False)["input_ids"]
        for start in range(0, len(ids), 31):
            piece = torch.tensor([[tiny.chat.bos_id, *ids[start : start + 31]]])
            residual = tiny.instrument.backend.residuals(piece, torch.ones_like(piece, dtype=torch.bool))
            acts.append(tiny.instrument.sae.encode(residual[0, 1:]).numpy())
    dense = np.concatenate(acts).astype(np.float64)
    stats = pl.read_parquet(swept / "stats.parquet").filter(pl.col("stratum") == "code")
    assert stats["n_tokens"].unique().to_list() == [len(dense)]
    assert (stats["n_fired"].to_numpy() - (dense > 0).sum(axis=0)).tolist() == [0] * D_SAE
    np.testing.assert_allclose(stats["sum"].to_numpy(), dense.sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(stats["max_activation"].to_numpy(), dense.max(axis=0), rtol=1e-4)


def test_the_stratum_all_is_the_sum_of_the_others(swept: Path) -> None:
    stats = pl.read_parquet(swept / "stats.parquet")
    of_all = stats.filter(pl.col("stratum") == "all").sort("feature")
    parts = stats.filter(pl.col("stratum") != "all").group_by("feature")
    others = parts.agg(pl.col("n_tokens", "n_fired", "sum").sum()).sort("feature")
    for name in ("n_tokens", "n_fired"):
        assert of_all[name].equals(others[name])
    np.testing.assert_allclose(of_all["sum"].to_numpy(), others["sum"].to_numpy(), rtol=1e-12)
    assert (of_all["histogram"].list.sum() == of_all["n_fired"]).all()


def test_the_report_counts_what_was_swept(tiny: TinySweep, swept: Path) -> None:
    report = json.loads((swept / "sweep.json").read_text())
    stats = pl.read_parquet(swept / "stats.parquet").filter(pl.col("stratum") == "all")
    everything = report["strata"]["all"]
    assert everything["tokens"] == stats["n_tokens"][0] == sum(everything["l0_histogram"])
    assert everything["mean_l0"] == pytest.approx(stats["n_fired"].sum() / stats["n_tokens"][0])
    assert report["coverage"][-1] == {
        "tokens": everything["tokens"],
        "features": D_SAE - everything["silent_features"],
    }
    assert sorted(point["tokens"] for point in report["coverage"]) == [
        point["tokens"] for point in report["coverage"]
    ]
    assert report["fingerprint"]["d_sae"] == D_SAE
    assert report["halved"] == {}
    assert set(report["strata"]) == {"all", "chat", "code", "encyclopedia"}


def test_the_pool_holds_every_firing_of_held_out_windows(tiny: TinySweep, swept: Path) -> None:
    pool = pl.read_parquet(swept / "pool.parquet")
    assert len(pool) == 40
    assert pool["window_id"].to_list() == list(range(40))
    assert all(map(is_held_out, pool["doc_id"]))
    lengths = pool.select(pl.col("features", "offsets", "activations").list.len())
    assert (lengths["features"] == lengths["offsets"]).all()
    assert (lengths["features"] == lengths["activations"]).all()
    assert pool["offsets"].explode().max() <= 24
    row = pool.row(0, named=True)
    text = tiny.documents.filter(pl.col("doc_id") == row["doc_id"]).row(0, named=True)["text"]
    assert row["stratum"] != "chat"
    ids = tiny.tokenizer(text, add_special_tokens=False)["input_ids"]
    start = row["position"] // 31 * 31
    piece = torch.tensor([[tiny.chat.bos_id, *ids[start : start + 31]]])
    residual = tiny.instrument.backend.residuals(piece, torch.ones_like(piece, dtype=torch.bool))
    acts = tiny.instrument.sae.encode(residual[0, 1 + row["position"] - start]).numpy()
    found = {
        feature: value
        for feature, offset, value in zip(row["features"], row["offsets"], row["activations"], strict=True)
        if offset == 12
    }
    assert sorted(found) == np.flatnonzero(acts).tolist()
    assert [found[f] for f in sorted(found)] == pytest.approx(acts[acts > 0].tolist(), rel=1e-4)


def test_examples_are_kept_for_every_kind_in_order_and_at_most_as_many_as_asked(swept: Path) -> None:
    examples = pl.read_parquet(swept / "examples.parquet")
    sizes = examples.group_by("feature", "kind").len().group_by("kind").agg(pl.col("len").max())
    assert dict(sizes.iter_rows()) == {"top": 5, "sample": 5, "held_out": 6}
    order = examples.select("feature", "kind", "rank")
    assert order.equals(order.sort("feature", "kind", "rank"))
    assert examples.schema["window"] == pl.Array(pl.Int32, 25)


def test_stats_json_carries_the_fingerprint(swept: Path) -> None:
    document = json.loads((swept / "stats.json").read_text())
    assert document["fingerprint"] == json.loads((swept / "sweep.json").read_text())["fingerprint"]
    assert document["width"] == D_SAE


def test_shards_made_under_different_conditions_are_not_merged(
    tiny: TinySweep, corpus: Path, tmp_path: Path
) -> None:
    settings = tiny.settings(tmp_path)
    sweep(settings, tiny, corpus, shards=2, samples=16)
    report = json.loads(shard_path(settings, 1).read_text())
    report["fingerprint"]["sweep"]["threads"] = 9
    shard_path(settings, 1).write_text(json.dumps(report))
    with pytest.raises(ArtefactError, match=r"different conditions: sweep: .*'threads': 9"):
        merge_into(settings, corpus, shards=2, samples=16)


def test_a_corpus_changed_after_the_sweep_is_noticed(tiny: TinySweep, corpus: Path, tmp_path: Path) -> None:
    settings = tiny.settings(tmp_path)
    sweep(settings, tiny, corpus, samples=16)
    other = tmp_path / "other.parquet"
    tiny.documents.head(20).write_parquet(other)
    with pytest.raises(ArtefactError, match="has changed since the sweep"):
        merge_into(settings, other, samples=16)


def test_a_shard_that_is_not_there_is_refused(tiny: TinySweep, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Shard 2 of 2"):
        run_shard(
            tiny.settings(tmp_path),
            corpus=corpus,
            sae=tiny.sae_path,
            output=tmp_path / "2.json",
            shard=2,
            shards=2,
        )


def test_an_sae_of_another_width_is_refused_by_name(tiny: TinySweep, corpus: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide.npz"
    n = D_SAE
    arrays = {"W_enc": (48, n), "b_enc": (n,), "threshold": (n,), "W_dec": (n, 48), "b_dec": (48,)}
    np.savez(wide, **{name: np.ones(shape, np.float32) for name, shape in arrays.items()})
    with pytest.raises(ModelError, match=r"wide\.npz reads 48 dimensions.* has 32"):
        run_shard(tiny.settings(tmp_path), corpus=corpus, sae=wide, output=tmp_path / "0.json")


def test_the_bar_says_tokens_per_second_and_time_left(
    tiny: TinySweep, corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = tiny.settings(tmp_path)
    run_shard(settings, corpus=corpus, sae=tiny.sae_path, output=tmp_path / "0.json", samples=16)
    out, err = capfd.readouterr()
    assert out == ""
    assert "sweep: 100%" in err
    assert "tok/s" in err
    assert "00:00<" in err or "<00:00" in err
