"""The sweep on an executor that is not Snakemake's own: jobs handed to a submit command, as a cluster's are."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.checkout import Checkout
from fakes.cluster import Cluster

SHARDS = 2
"""Those of the tiny pairing."""
MADE = ["stats.parquet", "examples.parquet", "pool.parquet", "neighbours.parquet"]


def wait_until(true: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def unswept(finished: Checkout, tmp_path: Path) -> Checkout:
    """All that stands before the sweep is made; of the sweep there is nothing."""
    checkout = Checkout(tmp_path / "a checkout")
    shutil.copytree(finished.root, checkout.root, symlinks=True)
    for name in ("chunks", "shards", "logs"):
        shutil.rmtree(checkout.results / name)
    for name in MADE:
        (checkout.results / name).unlink()
    return checkout


def test_shards_on_a_cluster_give_the_same_bytes_though_one_was_killed(
    unswept: Checkout, finished: Checkout, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "its jobs")
    words = ["--jobs=4", "--resources=model=4", "--rerun-triggers=mtime", *cluster.options, "--", "examples"]
    begun = unswept.results / "logs/shard-1.log"
    with subprocess.Popen(
        unswept.command(*words),
        cwd=unswept.root,
        env=unswept.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            wait_until(lambda: begun.exists() or run.poll() is not None)
            assert begun.exists(), cluster.output()
            (killed,), at_once = cluster.jobs("shard-1"), cluster.jobs("shard-*")
            cluster.kill(killed)
            said, _ = run.communicate()
        finally:
            run.kill()
    assert run.returncode == 1, said
    assert len(at_once) == SHARDS, "they are handed over together"
    assert len([*unswept.results.glob("shards/*.json")]) == SHARDS - 1, cluster.output()

    unswept.snakemake(*words)
    assert len(cluster.jobs("shard-*")) == SHARDS + 1, "only what was killed runs again"
    assert len(cluster.jobs("shard-1")) == 2
    assert len(cluster.jobs("examples")) == 1
    for name in MADE:
        assert (unswept.results / name).read_bytes() == (finished.results / name).read_bytes(), name
