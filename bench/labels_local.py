"""How long labels of a whole SAE take when nearly a third of all calls go wrong, and what that leaves behind.

The service is tests/fakes/claude.py in a process of its own, asked by the real SDK; it answers at once, so what is
measured is this project and the SDK. Evidence is made up: 25 examples of 25 tokens a feature.

    python bench/labels_local.py --features 16384 --faults 0.3
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl

from neuroscope.autointerp.calls.claude import Claude
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.prices import price_of
from neuroscope.autointerp.calls.records import Tally
from neuroscope.autointerp.calls.session import Terms
from neuroscope.autointerp.outcome import LabelCounts
from neuroscope.autointerp.pipeline import ask_for_labels
from neuroscope.autointerp.requests import Requests

ROOT = Path(__file__).parents[1]
MODEL = "claude-haiku-4-5-20251001"
VOCABULARY = 5000


def write_evidence(folder: Path, features: int) -> None:
    """examples.parquet and stats.parquet; a feature's examples mostly have one token in common."""
    rng = np.random.default_rng(0)
    kinds = np.array(["top"] * 20 + ["sample"] * 5)
    rows = features * len(kinds)
    windows = rng.integers(0, VOCABULARY, (rows, 25), dtype=np.int32)
    windows[:, 12] = np.where(rng.random(rows) < 0.8, np.repeat(np.arange(features), 25) % VOCABULARY, 0)
    columns = {
        "feature": np.repeat(np.arange(features, dtype=np.int32), len(kinds)),
        "kind": np.tile(kinds, features),
        "rank": np.tile([*range(20), *range(5)], features).astype(np.int32),
        "activation": rng.gamma(2, 4, rows).astype(np.float32),
        "window": windows,
        "doc_id": [f"{row:032x}" for row in range(rows)],
    }
    pl.DataFrame(columns).write_parquet(folder / "examples.parquet")
    stats = {
        "feature": np.arange(features, dtype=np.int32),
        "stratum": ["all"] * features,
        "n_tokens": [10**6] * features,
        "n_fired": rng.integers(25, 10**5, features),
    }
    pl.DataFrame(stats).write_parquet(folder / "stats.parquet")


def label(folder: Path, concurrency: int) -> tuple[LabelCounts, Tally, float]:
    tally = Tally()

    def keep(now: Tally) -> None:
        nonlocal tally
        tally = now

    began = time.monotonic()
    requests = Requests(
        examples=folder / "examples.parquet",
        tokens=lambda token: f" word{token}",
        stats=folder / "stats.parquet",
    )
    with closing(Claude(MODEL)) as client:
        counts = ask_for_labels(
            requests,
            client,
            Terms(price_of(MODEL), 1000.0, concurrency),
            source="claude",
            ledger=folder / "ledger.jsonl",
            out=folder / "claude.parquet",
            states=folder / "claude.states.parquet",
            progress=keep,
        )
    return counts, tally, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=16384)
    parser.add_argument("--faults", type=float, default=0.3)
    parser.add_argument("--concurrency", type=int, default=50)
    options = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    service = subprocess.Popen(
        [sys.executable, "-m", "fakes.claude", "0", str(options.faults)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert service.stdout is not None
    os.environ |= {"ANTHROPIC_BASE_URL": service.stdout.readline().strip(), "ANTHROPIC_API_KEY": "none"}
    os.environ["NO_PROXY"] = "127.0.0.1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_evidence(folder, options.features)
        counts, tally, seconds = label(folder, options.concurrency)
        print(f"{options.features} features, {options.faults:.0%} faults, {options.concurrency} at once")
        print(f"first run   {seconds:.0f} s, {counts}")
        print(
            f"            {tally.calls} replies paid (${tally.spent:.2f} at real prices), {tally.retries} repeated"
        )
        print(f"ledger      {(folder / 'ledger.jsonl').stat().st_size / 1e6:.1f} MB")
        _, again, seconds = label(folder, options.concurrency)
        print(
            f"second run  {seconds:.0f} s, {again.calls} calls, of which {again.states['failed']} fail again"
        )
        began = time.monotonic()
        Ledger(folder / "ledger.jsonl")
        print(f"            ledger read in {time.monotonic() - began:.1f} s")
    print(f"memory      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB at most")
    told = json.loads(service.communicate("")[0])
    print(f"service     {told['asked']} calls, {told['paid']} of them paid")


if __name__ == "__main__":
    main()
