"""The pipeline as it is used: the real Snakefile run by Snakemake, on a tiny random pairing."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
import yaml
from fakes.checkout import Checkout, make_checkout
from fakes.tiny import D_SAE

SWEPT = {"shard", "examples"}
NAMED = {"label", "score", "results"}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path)


@pytest.fixture
def running(checkout: Checkout) -> Iterator[subprocess.Popen[bytes]]:
    """A run of its own process group that has only just begun."""
    process = subprocess.Popen(
        checkout.command("examples"),
        cwd=checkout.root,
        env=checkout.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()


def wait_until(true: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def rows(checkout: Checkout, query: str) -> list[tuple[Any, ...]]:
    """Asked of the database as its readers do: another program, read-only."""
    with duckdb.connect(str(checkout.results / "results.duckdb"), read_only=True) as connection:
        return connection.sql(query).fetchall()


# --- what comes out


def test_labels_end_with_one_database(finished: Checkout) -> None:
    assert rows(finished, "SELECT count(*) FROM feature") == [(D_SAE,)]
    ((labelled, scored),) = rows(
        finished, "SELECT count(source), count(balanced_accuracy) FROM feature WHERE n_fired > 0"
    )
    assert labelled > D_SAE / 2
    assert scored > 0
    strata = {stratum for (stratum,) in rows(finished, "SELECT DISTINCT stratum FROM features")}
    assert strata == {"all", "encyclopedia", "code", "conversation", "chat"}
    ((tokens, fired),) = rows(
        finished, "SELECT any_value(n_tokens), sum(firing_rate) FROM features WHERE stratum = 'all'"
    )
    report = json.loads((finished.results / "sweep.json").read_text())["strata"]["all"]
    assert tokens == report["tokens"]
    assert fired == pytest.approx(report["mean_l0"]), "firing rates sum to the mean L0"


def test_the_exports_are_those_of_the_specification(finished: Checkout) -> None:
    labels = json.loads((finished.results / "labels.json").read_text())
    assert labels
    assert all(key.isdigit() and isinstance(text, str) for key, text in labels.items())
    stats = json.loads((finished.results / "stats.json").read_text())
    assert len(stats["features"]) == D_SAE
    cache = finished.root / "cache"
    assert (cache / "labels/tiny_layer1_autointerp.json").read_bytes() == (
        finished.results / "labels.json"
    ).read_bytes()
    assert (cache / "calibration/tiny_layer1_stats.json").is_file()


def test_a_second_run_has_nothing_to_do(finished: Checkout) -> None:
    assert finished.jobs("labels") == set()
    assert finished.jobs("scores") == set()
    assert finished.jobs("all") - {"all"} <= {"report"}, "labels alone draw no report"


def test_one_model_is_in_memory_at_a_time(finished: Checkout) -> None:
    spans = set()
    for path in (finished.root / ".snakemake/metadata").rglob("*"):
        if path.is_file():
            record = json.loads(path.read_text())
            if record["rule"] in ("chat", "logits", "shard"):
                spans.add((record["starttime"], record["endtime"]))
    ordered = sorted(spans)
    assert len(ordered) == 4, "chat, logits and two shards"
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ordered))


def test_secrets_are_written_nowhere(finished: Checkout) -> None:
    holding = [
        path
        for path in finished.root.rglob("*")
        if path.is_file() and not path.is_symlink() and b"secretsecret" in path.read_bytes()
    ]
    assert holding == []


# --- what runs again


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"serve": {"port": 9000}, "ranking": {"top_k": 3}, "labels": {"concurrency": 3}}, set()),
        ({"labels": {"min_score": 0.9}}, {"results"}),
        ({"labels": {"score": False}}, {"results"}),
        ({"labels": {"negatives": 6}}, {"score", "results"}),
        ({"labels": {"examples_per_feature": 7}}, NAMED),
        ({"examples": {"sampled": 3}}, SWEPT | NAMED),
        ({"sweep": {"shards": 3}}, SWEPT | NAMED),
        ({"corpus": {"document_chars": 300}}, {"documents", "chat", "corpus"} | SWEPT | NAMED),
        ({"corpus": {"chat": {"seed": 5}}}, {"chat", "corpus"} | SWEPT | NAMED),
        ({"layer": 2, "sae": {"source": "sae.npz"}}, SWEPT | NAMED),
        ({"sae": {"input_norm": "rms"}}, {"logits"} | SWEPT | NAMED),
    ],
    ids=lambda value: "-".join(sorted(value)) or "nothing",
)
def test_a_changed_setting_runs_exactly_what_depends_on_it(
    change: dict[str, Any], again: set[str], finished: Checkout, tmp_path: Path
) -> None:
    path = tmp_path / "change.yaml"
    path.write_text(yaml.safe_dump(change))
    assert finished.jobs("labels", "--configfile", str(path)) - {"labels"} == again


def test_a_calibration_uses_finished_chunks_and_never_replaces_more(finished: Checkout) -> None:
    def chunks() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (finished.results / "chunks").iterdir()}

    before, database = chunks(), (finished.results / "results.duckdb").read_bytes()
    finished.snakemake("calibration")
    calibrated = json.loads((finished.results / "calibration/sweep.json").read_text())["strata"]["all"]
    ((tokens,),) = rows(finished, "SELECT any_value(n_tokens) FROM feature")
    assert 0 < calibrated["tokens"] < tokens
    assert chunks() == before
    assert (finished.results / "results.duckdb").read_bytes() == database


# --- faults


@pytest.mark.parametrize(
    ("moment", "target", "made"),
    [
        ("documents.parquet", "corpus", ["corpus.parquet"]),
        ("chunks/*.npz", "examples", ["stats.parquet", "examples.parquet", "pool.parquet"]),
    ],
    ids=["corpus", "sweep"],
)
def test_a_killed_run_goes_on_and_ends_the_same(
    moment: str,
    target: str,
    made: list[str],
    running: subprocess.Popen[bytes],
    checkout: Checkout,
    finished: Checkout,
) -> None:
    wait_until(lambda: [*checkout.results.glob(moment)])
    children = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGKILL)
    running.wait()
    _, left = psutil.wait_procs(children, timeout=5)  # seconds; two on an idle machine
    assert left == [], "jobs end with their run"
    checkout.snakemake(target)
    for name in made:
        assert (checkout.results / name).read_bytes() == (finished.results / name).read_bytes(), name
    assert [*checkout.results.rglob("*.tmp")] == []


def test_ctrl_c_ends_within_five_seconds_and_leaves_no_lock(
    running: subprocess.Popen[bytes], checkout: Checkout
) -> None:
    wait_until(lambda: [*checkout.results.glob("logs/*.log")])
    started = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=30) != 0
    assert time.monotonic() - started < 15  # seconds; a busy machine takes longer than the promised five
    checkout.snakemake("corpus")
