"""One stage of the sweep as the pipeline starts it, in a process of its own: its seconds and its peak memory.

The peak is the kernel's VmHWM, which begins anew with each program. `getrusage` would not do: a child's ru_maxrss
begins with what its parent held when it started it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAIRING = "smollm2-135m"

STAGE = """
import sys, json
from pathlib import Path
from bench.stages import peak_mb
from neuroscope import settings
from neuroscope.sweep import merge, run_shard
stage, pairing, overrides, text, sae, folder = *sys.argv[1:3], json.loads(sys.argv[3]), *map(Path, sys.argv[4:])
chosen = settings.load(pairing, overrides=overrides)
if stage == "shard":
    run_shard(chosen, corpus=text, sae=sae, output=folder / "0.json", chunks=folder / "chunks", progress=False)
else:
    names = ("stats", "examples", "pool", "neighbours")
    merge(
        chosen, corpus=text, shards=[folder / "0.json"], chunks=folder / "chunks", report=folder / "sweep.json",
        stats_json=folder / "stats.json", **{name: folder / f"{name}.parquet" for name in names}
    )
print(json.dumps(peak_mb()))
"""


@dataclass(frozen=True)
class Spent:
    """By a whole process, from its start to its end."""

    seconds: float
    peak_mb: float


def stage(name: str, overrides: Mapping[str, Any], text: Path, sae: Path, folder: Path) -> Spent:
    """`shard` or `merge`, the second after the first in the same folder."""
    arguments = [name, PAIRING, json.dumps(overrides), str(text), str(sae), str(folder)]
    began = time.perf_counter()
    printed = run([sys.executable, "-c", STAGE, *arguments])
    return Spent(time.perf_counter() - began, float(printed))


def run(command: list[str]) -> str:
    """The last line that a program prints."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("This system does not tell a process's peak memory (VmHWM): measure on Linux.")
