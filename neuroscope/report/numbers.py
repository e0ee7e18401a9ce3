"""The numbers behind the plots: histograms, cells and curves of what the sweep and the scores have left.

Pure functions of arrays. What is drawn of them is `plots`' business, where they come from `reading`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuroscope.autointerp.accuracy import Z95
from neuroscope.stats import MIN_FIRINGS, CalibrationStats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALWAYS_ON = 0.5
"""A feature that fires on more than this share of tokens says nothing about a token; the server hides it by default."""
DENSITY_STEP = 0.2
"""Width of a bin of log10 density: narrower ones show gaps between one firing, two and three."""
L0_BINS = 60
SCORE_BINS = 20
COVERAGE_POINTS = 200
LATE = 0.1
"""Share of the tokens, at the sweep's end, whose new features say whether it was long enough."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A part of the report that cannot be told, and why."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Firing:
    """How often the features fire, over all strata."""

    tokens: int
    features: int
    dead: int
    """Features that never fired."""
    rare: int
    """Features that fired, but fewer than MIN_FIRINGS times: they have no surprise."""
    always_on: int
    edges: Floats
    """Of log10 density."""
    counts: Ints
    """Features in each bin; the dead are in none."""

    @property
    def rare_below(self) -> float:
        """The log10 density under which a feature is rare."""
        return math.log10(min(MIN_FIRINGS / self.tokens, 1.0))


def firing(stats: CalibrationStats) -> Firing | Missing:
    if stats.n_tokens < 1:
        return Missing("The sweep measured no token.")
    rate, fired = stats.firing_rate, stats.n_fired > 0
    lowest = math.floor(-math.log10(stats.n_tokens) / DENSITY_STEP)
    edges = np.asarray(np.arange(min(lowest, -1), 1) * DENSITY_STEP, np.float64)
    counts, _ = np.histogram(np.log10(rate[fired]), edges)
    return Firing(
        tokens=stats.n_tokens,
        features=stats.d_sae,
        dead=int((~fired).sum()),
        rare=int((fired & (stats.n_fired < MIN_FIRINGS)).sum()),
        always_on=int((rate > ALWAYS_ON).sum()),
        edges=edges,
        counts=counts.astype(np.int64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ActiveFeatures:
    """How many features are active on a token of one stratum."""

    stratum: str
    tokens: int
    mean: float
    width: int
    """Values of L0 in a bin; bin n begins at n times this."""
    shares: Floats
    """Of the stratum's tokens, by bin."""


def active_features(histograms: Mapping[str, Sequence[int]]) -> tuple[ActiveFeatures, ...] | Missing:
    """`histograms` are tokens by L0, from 0, of each stratum; those without a token are left out."""
    counts = {name: np.asarray(found, np.int64) for name, found in histograms.items() if sum(found)}
    if not counts:
        return Missing("The results do not say how many features were active on each token.")
    longest = max(int(np.flatnonzero(found)[-1]) + 1 for found in counts.values())
    width = -(-longest // L0_BINS)
    bins = -(-longest // width)
    return tuple(_active(name, found[:longest], width, bins) for name, found in counts.items())


def _active(name: str, counts: Ints, width: int, bins: int) -> ActiveFeatures:
    padded = np.zeros(width * bins, np.int64)
    padded[: len(counts)] = counts
    tokens = int(counts.sum())
    mean = float(counts @ np.arange(len(counts)) / tokens)
    return ActiveFeatures(name, tokens, mean, width, padded.reshape(bins, width).sum(1) / tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Points counted on a grid: cell n of an axis begins at n times its step."""

    steps: tuple[float, float]
    x: Ints
    y: Ints
    counts: Ints

    @classmethod
    def of(cls, x: Floats, y: Floats, steps: tuple[float, float]) -> Cells:
        at = np.floor(np.column_stack([x / steps[0], y / steps[1]])).astype(np.int64)
        cells, counts = np.unique(at.reshape(-1, 2), axis=0, return_counts=True)
        return cls(steps, cells[:, 0], cells[:, 1], counts.astype(np.int64))


ACTIVATION_STEPS = (0.1, 0.1)
"""Of log10 firing rate and log10 activation."""


@dataclass(frozen=True, slots=True, eq=False)
class Strength:
    """Mean activation while firing against firing rate, both as log10."""

    features: int
    correlation: float | None
    """Of their ranks."""
    cells: Cells


def strength(stats: CalibrationStats) -> Strength | Missing:
    """Of the features that fired and have a mean that can be shown on a logarithmic axis."""
    shown = (stats.n_fired > 0) & np.isfinite(stats.mean_firing) & (stats.mean_firing > 0)
    if not shown.any():
        return Missing("No feature fired.")
    x, y = np.log10(stats.firing_rate[shown]), np.log10(stats.mean_firing[shown])
    return Strength(int(shown.sum()), rank_correlation(x, y), Cells.of(x, y, ACTIVATION_STEPS))


def rank_correlation(x: Floats, y: Floats) -> float | None:
    """Spearman's, ties by their mean rank; None for fewer than three points, or where one side never changes."""
    if len(x) < 3:
        return None
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else None


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Balanced accuracy of the labels of one source, by one method."""

    source: str
    method: str
    scored: int
    failed: int
    """Labels without a score."""
    mean: float | None
    low: float | None
    """Lower end of the mean's 95% interval; None for fewer than two labels."""
    high: float | None
    median: float | None
    counts: Ints
    """Labels in SCORE_BINS bins from 0 to 1."""


def scores(found: Mapping[tuple[str, str], Floats]) -> tuple[Scores, ...] | Missing:
    """`found` has the balanced accuracies by source and method, NaN for a label without one."""
    if not found:
        return Missing("No label has a score.")
    return tuple(_scores(*key, values) for key, values in found.items())


def _scores(source: str, method: str, values: Floats) -> Scores:
    known = values[np.isfinite(values)]
    counts, _ = np.histogram(known, np.linspace(0, 1, SCORE_BINS + 1))
    mean = median = low = high = None
    if len(known):
        mean, median = float(known.mean()), float(np.median(known))
    if mean is not None and len(known) > 1:
        half = Z95 * float(known.std(ddof=1)) / math.sqrt(len(known))
        low, high = max(0.0, mean - half), min(1.0, mean + half)
    failed = len(values) - len(known)
    return Scores(source, method, len(known), failed, mean, low, high, median, counts.astype(np.int64))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Features that fired at least once, against the tokens measured by then."""

    features: int
    """Of the SAE."""
    points: tuple[tuple[int, int], ...]
    late: int
    """Features first seen in the last LATE of the tokens."""


def coverage(points: Sequence[tuple[int, int]], d_sae: int) -> Coverage | Missing:
    """`points` are (tokens, features seen) after each chunk of the sweep."""
    known = [point for point in points if point[0] > 0]
    if not known:
        return Missing("The results do not say how many features were seen as the sweep went on.")
    tokens, seen = known[-1]
    before = [features for at, features in known if at <= (1 - LATE) * tokens]
    late = seen - (before[-1] if before else 0)
    return Coverage(d_sae, tuple(known[i] for i in _spread(len(known))), late)


def _spread(n: int) -> list[int]:
    """At most COVERAGE_POINTS of n places, the first and the last among them, dense where curves bend."""
    if n <= COVERAGE_POINTS:
        return list(range(n))
    places = np.geomspace(1, n, COVERAGE_POINTS).round().astype(int) - 1
    return [int(place) for place in np.unique(places)]
