"""The products of many rows."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import re
import torch
from neuroscope.models.kernels import for_rows

def private_mb():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

torch.set_num_threads(1)
product = for_rows(torch.device("cpu"), torch.float32)
weight = torch.zeros(512, 256)
x = torch.zeros(400, 256)

def run(numbers):
    for rows in numbers:
        product(x[:rows], weight, None)

run(range(100, 140))
before = private_mb()
run(range(140, 400))
print(private_mb() - before)
"""


def grown_mb(**env: str) -> float:
    """Memory that batches of 260 more sizes take."""
    caches = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    own = {name: value for name, value in os.environ.items() if name not in caches}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**own, **env}, capture_output=True, text=True, check=True
    )
    return float(run.stdout)


def test_batches_of_many_sizes_leave_little_in_memory() -> None:
    kept = {"LRU_CACHE_CAPACITY": "1024", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024"}
    assert grown_mb() < grown_mb(**kept) / 3, "what a user sets holds, and shows what is spared"
