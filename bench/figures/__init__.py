"""The benchmarks, one module for each group of figures. `NAMES` is their order in the table."""

from __future__ import annotations

NAMES: tuple[str, ...] = (
    "instrument",
    "decode",
    "packed",
    "llamacpp",
    "sweep",
    "rivals",
    "prefix",
    "start",
    "results",
    "subscribers",
)
