"""What a benchmark gives: figures beside what they must reach, each a ratio against something run beside it.

A module of `bench/figures` has a function `measure(rounds: int) -> list[Figure]`; its docstring says what it measures.
`python -m bench` runs it in a process of its own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest value it was taken from."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    """Unique over all figures; says what is compared in a few words, `decode-bfloat16`."""
    what: str
    against: str
    measured: Spread
    unit: str
    """x for a ratio, else s, ms, MB or %."""
    at_least: float | None = None
    at_most: float | None = None
    """Of the two, the one that is promised; neither for a figure that is only reported."""
    details: dict[str, Any] = field(default_factory=dict)
    """What the ratio was made of, by name with the unit in it: `tokens_per_s`, `without_ms`."""
    note: str = ""
    """What a reader must know to read the figure right; one sentence."""

    @property
    def kept(self) -> bool | None:
        """Whether the median reaches what is promised; None where nothing is."""
        if self.at_least is not None:
            return self.measured.median >= self.at_least
        return None if self.at_most is None else self.measured.median <= self.at_most


def seconds(job: Callable[[], object]) -> float:
    """One run of `job`, the garbage of earlier ones collected beforehand."""
    gc.collect()
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def ratio(pairs: Sequence[tuple[float, float]]) -> Spread:
    """How many times faster the second of each pair is: the first's seconds by the second's."""
    return Spread.of([one / other for one, other in pairs])
