"""Runs of the pipeline from nothing: a calibration, a training, and starts that are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import numpy as np
import pytest
from fakes.checkout import Checkout, make_checkout
from fakes.tiny import D_MODEL

from neuroscope import jobs


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path)


def test_a_calibration_ends_with_statistics_and_no_labels(checkout: Checkout) -> None:
    checkout.snakemake("calibration")
    with duckdb.connect(str(checkout.results / "results.duckdb"), read_only=True) as connection:
        found = connection.sql("SELECT any_value(n_tokens), count(source) FROM feature").fetchall()
    ((tokens, labels),) = found
    assert tokens > 0
    assert labels == 0
    still = {"logits", "shard", "examples", "label", "score", "results"}
    assert checkout.jobs("labels") - {"labels"} == still, "a full run has its work before it"


def test_an_sae_is_trained_and_can_be_loaded(checkout: Checkout) -> None:
    checkout.configure(
        training={
            "tokens": 1000,
            "width": 16,
            "steps": 10,
            "batch": 64,
            "k": 4,
            "warmup": 2,
            "dead_tokens": 500,
            "held_out": 0.3,
        }
    )
    checkout.snakemake("train")
    weights = np.load(checkout.results / "training/params.npz")
    assert weights["W_enc"].shape == (D_MODEL, 16)
    assert json.loads((checkout.results / "training/card.json").read_text())


def test_two_runs_do_not_write_one_folder(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_held", [])
    jobs.hold(checkout.results)
    refused = checkout.snakemake("corpus", check=False)
    assert refused.returncode == 1
    assert f"Another run (process {os.getpid()}) is writing" in refused.stderr
    for lock in jobs._held:
        lock.close()


def test_a_failed_stage_is_told_last_and_in_words(checkout: Checkout) -> None:
    path = checkout.root / "config/pairings/tiny.yaml"
    path.write_text(path.read_text().replace("texts/code", "texts/nothing"))
    failed = checkout.snakemake("labels", check=False)
    assert failed.returncode == 1
    last = failed.stderr.rpartition("\nneuroscope: ")[2]
    assert "texts/nothing: no such file or folder" in last


def test_an_unknown_setting_is_refused_before_anything_runs(checkout: Checkout) -> None:
    refused = checkout.snakemake("labels", "--config", "pairng=tiny", check=False)
    assert refused.returncode == 1
    assert "pairng" in refused.stderr
    assert "pairing" in refused.stderr
    assert not checkout.results.exists()


def test_without_gemma_the_error_names_the_pairing_that_needs_nothing(checkout: Checkout) -> None:
    pairings = Path(__file__).parents[2] / "config/pairings/gemma-2-2b-it.yaml"
    (checkout.root / "config/pairings/gemma-2-2b-it.yaml").write_bytes(pairings.read_bytes())
    failed = checkout.snakemake(
        "labels",
        "--config",
        "pairing=gemma-2-2b-it",
        check=False,
        HF_HUB_OFFLINE="1",
        HF_HOME=str(checkout.root),
    )
    assert failed.returncode == 1
    assert "NEUROSCOPE_PAIRING=smollm2-135m snakemake --cores 8 labels" in failed.stderr


def test_a_key_given_twice_stops_the_run_with_file_and_line(checkout: Checkout) -> None:
    more = checkout.root / "more.yaml"
    more.write_text("ranking:\n  top_k: 3\nranking:\n  top_k: 5\n")
    done = checkout.snakemake("--dry-run", "corpus", "--configfile", str(more), check=False)
    assert done.returncode != 0
    assert f"{more}, line 3: ranking is given in line 1 already. Remove one." in done.stdout + done.stderr
    config = checkout.root / "config/config.yaml"
    config.write_text(f"{config.read_text()}\nresults: '{{pairing}}'\n")
    done = checkout.snakemake("--dry-run", "corpus", check=False)
    assert done.returncode != 0
    assert "config.yaml, line" in done.stdout + done.stderr
    assert "results is given in line" in done.stdout + done.stderr
