"""Memory of a batch is used again by the next one, where the C library can be told to keep it."""

from __future__ import annotations

import platform
import subprocess
import sys

SCRIPT = """
import ctypes
import resource
import sys

import torch
from neuroscope.sweep.heap import M_MMAP_THRESHOLD, keep_freed_memory

if sys.argv[1] == "kept":
    kept = keep_freed_memory()
else:  # left to itself glibc gives back or keeps, as addresses happen to lie; so here it gives back for certain
    kept = bool(getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(M_MMAP_THRESHOLD, 128 << 10))
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
    given_back, without = faults("given back")
    glibc = platform.libc_ver()[0] == "glibc"
    assert kept == given_back == str(glibc)
    if glibc:
        assert with_it < without / 10
