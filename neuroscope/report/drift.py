"""Whether features fire as often in one kind of text as in another: the server ranks by the rates of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from neuroscope.report.numbers import Cells, Floats, Missing, rank_correlation
from neuroscope.stats import MIN_FIRINGS, CalibrationStats

FACTOR = 2.0
STEPS = (0.15, 0.15)
"""Of log10 firing rate."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The firing rates of two strata, over the features that fired often enough to be compared."""

    a: str
    b: str
    compared: int
    correlation: float | None
    """Of the ranks of both rates, over all features that fired in either: a choice by firings would lower it."""
    differ: int
    """Features whose rates differ more than FACTOR times."""
    cells: Cells
    """log10 rate in a against log10 rate in b; a rate of zero is drawn at half a firing."""

    @property
    def share(self) -> float | None:
        return self.differ / self.compared if self.compared else None


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """Every pair of strata, those with the reference first."""

    reference: str
    pairs: tuple[Pair, ...]
    log2_ratio: Floats
    """The largest difference of each feature between the reference and another stratum [d_sae]; 0 if not compared."""
    where: NDArray[np.object_]
    """The other stratum of that difference [d_sae]; empty if not compared."""

    @property
    def shown(self) -> tuple[Pair, ...]:
        """Those that are drawn."""
        return tuple(pair for pair in self.pairs if pair.a == self.reference)


def drift(strata: Mapping[str, CalibrationStats], wanted: str) -> Drift | Missing:
    """`strata` without their sum; the reference is `wanted`, else the stratum with the most tokens."""
    measured = {name: stats for name, stats in strata.items() if stats.n_tokens > 0}
    if len(measured) < 2:
        there = ", ".join(measured) or "none"
        return Missing(f"Two kinds of text are needed to compare; measured: {there}.")
    most = max(measured, key=lambda name: measured[name].n_tokens)
    reference = wanted if wanted in measured else most
    names = [reference, *(name for name in measured if name != reference)]
    pairs = [_pair(one, other, measured[one], measured[other]) for one, other in combinations(names, 2)]
    others = names[1:]
    ratios = np.stack([log2_ratio(measured[reference], measured[name]) for name in others])
    most_different = np.abs(ratios).argmax(0)
    largest = ratios[most_different, np.arange(ratios.shape[1])]
    where = np.where(largest != 0, np.array(others, object)[most_different], "")
    return Drift(reference, tuple(pairs), largest, where)


def comparable(a: CalibrationStats, b: CalibrationStats) -> NDArray[np.bool_]:
    """Features that would have fired MIN_FIRINGS times in either stratum, were they alike: fewer differ by chance."""
    pooled = (a.n_fired + b.n_fired) / (a.n_tokens + b.n_tokens)
    enough: NDArray[np.bool_] = pooled * min(a.n_tokens, b.n_tokens) >= MIN_FIRINGS
    return enough


def log2_ratio(a: CalibrationStats, b: CalibrationStats) -> Floats:
    """log2 of the rate in b divided by that in a, [d_sae]; half a firing stands for none, 0 for not comparable."""
    ratio = np.log2(_rate(b) / _rate(a))
    return np.where(comparable(a, b), ratio, 0.0)


def _rate(stats: CalibrationStats) -> Floats:
    rate: Floats = np.maximum(stats.n_fired, 0.5) / stats.n_tokens
    return rate


def _pair(name_a: str, name_b: str, a: CalibrationStats, b: CalibrationStats) -> Pair:
    chosen = comparable(a, b)
    x, y = _rate(a)[chosen], _rate(b)[chosen]
    differ = int(((x > FACTOR * y) | (y > FACTOR * x)).sum())
    cells = Cells.of(np.log10(x), np.log10(y), STEPS)
    fired = (a.n_fired > 0) | (b.n_fired > 0)
    correlation = rank_correlation(a.firing_rate[fired], b.firing_rate[fired])
    return Pair(name_a, name_b, int(chosen.sum()), correlation, differ, cells)
