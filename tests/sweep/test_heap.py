"""Memory of a batch is used again by the next one, where the C library can be told to keep it."""

from __future__ import annotations

import platform
import subprocess
import sys

SCRIPT = """
import resource
import sys

import torch
from neuroscope.sweep.heap import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "kept" else None
torch.set_num_threads(1)

def batch():
    layers = [torch.ones(1_500_000) for _ in range(3)]
    return sum(float(layer[0]) for layer in layers)

for _ in range(3):
    batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> tuple[str, int]:
    run = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    kept, number = run.stdout.split()
    return kept, int(number)


def test_a_batch_runs_in_the_memory_of_the_one_before() -> None:
    kept, with_it = faults("kept")
    _, without = faults("as it is")
    if platform.libc_ver()[0] == "glibc":
        assert kept == "True"
        assert with_it < without / 10
    else:
        assert kept == "False"
