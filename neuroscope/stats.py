"""How often and how strongly each feature fires: the sweep's accumulator and the server's finished figures.

Two populations are kept and named, because mixing them is not a z-score: *firing* (the tokens on which the
feature is active) and *all* (every token, zero where it is silent). Surprise uses the firing population.
NumPy only: tables, files of the sweep and the database are elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from neuroscope.errors import ArtefactError, made_anew

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_FIRINGS = 10
"""Below this many firings a mean and a variance say nothing: surprise is NaN (null on the wire)."""

SURPRISE_EPSILON = 1e-6
"""Added to the variance, as in the original formula, so that a feature that never varies has a score."""

HISTOGRAM_EDGES: Floats = 2.0 ** (np.arange(-16, 33) / 2)
"""49 log-spaced edges from 2^-8 to 2^16, two per octave. Bin 0 is below the first, bin 49 above the last."""

HISTOGRAM_BINS = len(HISTOGRAM_EDGES) + 1

STATS_SCHEMA = 1


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationStats:
    """Per-feature figures over `n_tokens` tokens of one stratum. Every array is [d_sae].

    A feature that never fired has NaN for `mean_firing` and `variance_firing` (there is no such population)
    and 0 for `max_activation`.
    """

    source: ClassVar[str] = "measured"

    n_tokens: int
    n_fired: Ints
    mean_firing: Floats
    variance_firing: Floats
    mean_all: Floats
    variance_all: Floats
    max_activation: Floats
    firing_rate: Floats = field(init=False, repr=False)
    """Share of tokens on which the feature is active, [d_sae]. Sums to the mean L0."""
    _mean: Floats = field(init=False, repr=False)
    _deviation: Floats = field(init=False, repr=False)
    """What `surprise` takes away and divides by, made once: it is asked at every token for every ranking."""

    def __post_init__(self) -> None:
        arrays = (
            self.mean_firing,
            self.variance_firing,
            self.mean_all,
            self.variance_all,
            self.max_activation,
        )
        if any(array.shape != (self.d_sae,) for array in arrays):
            raise ValueError(f"every array must be [{self.d_sae}], the shape of n_fired")
        with np.errstate(invalid="ignore"):  # a variance that is none gives a score that is none
            deviation = np.sqrt(self.variance_firing + SURPRISE_EPSILON)
        derived = {
            "firing_rate": self.n_fired / max(self.n_tokens, 1),
            "_mean": np.where(self.n_fired >= MIN_FIRINGS, self.mean_firing, np.nan),
            "_deviation": deviation,
        }
        for name, array in derived.items():
            object.__setattr__(self, name, array)

    @classmethod
    def from_sums(
        cls, n_tokens: int, n_fired: Ints, total: Floats, total_sq: Floats, maximum: Floats
    ) -> CalibrationStats:
        """From the sums that merge exactly. Variances are of the population (divided by n, not n - 1)."""
        fired = n_fired > 0
        nan = np.full(len(n_fired), np.nan)
        mean_firing = np.divide(total, n_fired, out=nan.copy(), where=fired)
        mean_sq = np.divide(total_sq, n_fired, out=nan.copy(), where=fired)
        variance_firing = np.maximum(mean_sq - mean_firing**2, 0.0)
        tokens = max(n_tokens, 1)
        mean_all = total / tokens
        variance_all = np.maximum(total_sq / tokens - mean_all**2, 0.0)
        return cls(n_tokens, n_fired, mean_firing, variance_firing, mean_all, variance_all, maximum)

    @property
    def d_sae(self) -> int:
        return len(self.n_fired)

    @property
    def log_density(self) -> Floats:
        """log10 of the firing rate; NaN for features that never fired."""
        rate = self.firing_rate
        return np.log10(rate, out=np.full(self.d_sae, np.nan), where=rate > 0)

    def surprise(self, indices: NDArray[Any], activations: NDArray[Any]) -> Floats:
        """`(activation - mean_firing) / sqrt(variance_firing + epsilon)`; NaN under MIN_FIRINGS firings."""
        z: Floats = (activations - self._mean[indices]) / self._deviation[indices]
        return z

    def to_json(
        self, path: Path, *, sae_id: str, fingerprint: Mapping[str, Any] | None = None, stratum: str = "all"
    ) -> None:
        """Write `stats.json`: per feature firing rate, mean and variance when firing, and what made it."""
        from neuroscope.sources import replace_atomically

        columns = {
            "firing_rate": self.firing_rate,
            "mean": self.mean_firing,
            "variance": self.variance_firing,
            "mean_all": self.mean_all,
            "variance_all": self.variance_all,
            "max_activation": self.max_activation,
        }
        lists = {
            name: [None if math.isnan(x) else x for x in array.tolist()] for name, array in columns.items()
        }
        lists["n_fired"] = self.n_fired.tolist()
        names = list(lists)
        features = {
            str(index): dict(zip(names, row, strict=True))
            for index, row in enumerate(zip(*lists.values(), strict=True))
        }
        document = {
            "schema": STATS_SCHEMA,
            "sae_id": sae_id,
            "stratum": stratum,
            "n_tokens": self.n_tokens,
            "width": self.d_sae,
            "fingerprint": None if fingerprint is None else dict(fingerprint),
            "features": features,
        }
        with replace_atomically(Path(path)) as temporary:
            temporary.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")

    @classmethod
    def from_json(cls, path: Path) -> CalibrationStats:
        """Read `stats.json`; firing rate, mean and variance per feature suffice, the rest is derived.

        Raises ArtefactError when the file is missing, not JSON, or lacks features.
        """
        document = read_stats_document(path)
        try:
            n_tokens = int(document["n_tokens"])
            rows = [document["features"][str(index)] for index in range(len(document["features"]))]
            rate = _column(rows, "firing_rate")
            n_fired = np.rint(_column(rows, "n_fired", rate * n_tokens)).astype(np.int64)
            if not ((rate >= 0) & (rate <= 1)).all():
                raise ValueError("a firing rate is outside 0 to 1")
            mean, variance = _column(rows, "mean"), _column(rows, "variance")
            total = np.where(n_fired > 0, mean * n_fired, 0.0)
            total_sq = np.where(n_fired > 0, (variance + mean**2) * n_fired, 0.0)
            derived = cls.from_sums(n_tokens, n_fired, total, total_sq, np.zeros(len(rows)))
            return cls(
                n_tokens,
                n_fired,
                mean,
                variance,
                _column(rows, "mean_all", derived.mean_all),
                _column(rows, "variance_all", derived.variance_all),
                _column(rows, "max_activation", np.where(n_fired > 0, mean, 0.0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ArtefactError(
                f"{path} is not a stats file: {type(error).__name__}: {error}. Expected n_tokens, features "
                '{"0": {"firing_rate", "mean", "variance"}, ...}. Make one with `neuroscope calibrate run`.'
            ) from error


def read_stats_document(path: Path) -> dict[str, Any]:
    """The document of a stats file: `sae_id, stratum, n_tokens, width, fingerprint, features`."""
    from neuroscope.sources import read_text

    try:
        document = json.loads(read_text(path))
    except FileNotFoundError as error:
        raise ArtefactError(
            f"There is no stats file at {path}. Make one with `neuroscope calibrate run`."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        remedy = made_anew("neuroscope calibrate run")
        raise ArtefactError(f"{path} cannot be read as JSON: {error}. {remedy}") from error
    if not isinstance(document, dict):
        raise ArtefactError(f"{path} holds a JSON {type(document).__name__}, not the object of a stats file.")
    return document


def _column(rows: list[Mapping[str, Any]], name: str, default: Floats | None = None) -> Floats:
    """One figure of every feature, null as NaN; `default` where a file does not carry the figure at all."""
    if default is not None and not all(name in row for row in rows):
        return default
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


class FeatureStats:
    """Sums over tokens that merge exactly, in float64: what `CalibrationStats` is finished from.

    Its size depends on d_sae alone. Firings come sparse: one entry per active (token, feature).
    """

    def __init__(self, d_sae: int) -> None:
        self.d_sae = d_sae
        self.n_tokens = 0
        self.n_fired: Ints = np.zeros(d_sae, np.int64)
        self.total: Floats = np.zeros(d_sae)
        self.total_sq: Floats = np.zeros(d_sae)
        self.maximum: Floats = np.zeros(d_sae)
        self.histogram: Ints = np.zeros((d_sae, HISTOGRAM_BINS), np.int64)
        self.l0_histogram: Ints = np.zeros(1, np.int64)
        """Number of tokens with 0, 1, 2, ... active features."""

    def add(self, features: NDArray[Any], values: NDArray[Any], l0: NDArray[Any]) -> None:
        """Add tokens: `features` and `values` of their firings [m], `l0` how many each has [n_tokens]."""
        self.merge_sparse(sparse_sums(self.d_sae, features, values, l0))

    def merge(self, other: FeatureStats) -> None:
        """Add another accumulator of the same width."""
        self.merge_sparse(other.to_sparse())

    def to_sparse(self) -> dict[str, NDArray[Any]]:
        """The features that fired, as arrays for a file; `merge_sparse` takes them back."""
        rows = np.flatnonzero(self.n_fired)
        cells = np.flatnonzero(self.histogram)
        return {
            "n_tokens": np.array(self.n_tokens, np.int64),
            "features": rows.astype(np.int32),
            "n_fired": self.n_fired[rows],
            "total": self.total[rows],
            "total_sq": self.total_sq[rows],
            "maximum": self.maximum[rows],
            "histogram_cells": cells,
            "histogram_counts": self.histogram.reshape(-1)[cells],
            "l0_histogram": self.l0_histogram,
        }

    def merge_sparse(self, sums: Mapping[str, NDArray[Any]]) -> None:
        rows = sums["features"]
        self.n_tokens += int(sums["n_tokens"])
        self.n_fired[rows] += sums["n_fired"]
        self.total[rows] += sums["total"]
        self.total_sq[rows] += sums["total_sq"]
        self.maximum[rows] = np.maximum(self.maximum[rows], sums["maximum"])
        self.histogram.reshape(-1)[sums["histogram_cells"]] += sums["histogram_counts"]
        self.l0_histogram = _add_ragged(self.l0_histogram, sums["l0_histogram"])

    def finish(self) -> CalibrationStats:
        return CalibrationStats.from_sums(
            self.n_tokens, self.n_fired.copy(), self.total.copy(), self.total_sq.copy(), self.maximum.copy()
        )


def sparse_sums(
    d_sae: int, features: NDArray[Any], values: NDArray[Any], l0: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """What `FeatureStats` would hold of these tokens, in the form of `to_sparse`: no histogram of silent features.

    `features` and `values` are firings [m], `l0` says how many each token has [n_tokens].
    """
    features = features.astype(np.int64, copy=False)
    values = values.astype(np.float64, copy=False)
    n_fired = np.bincount(features, minlength=d_sae)
    rows = np.flatnonzero(n_fired)
    maximum = np.zeros(d_sae)
    np.maximum.at(maximum, features, values)
    bins = np.searchsorted(HISTOGRAM_EDGES, values, side="right")
    cells, counts = np.unique(features * HISTOGRAM_BINS + bins, return_counts=True)
    return {
        "n_tokens": np.array(len(l0), np.int64),
        "features": rows.astype(np.int32),
        "n_fired": n_fired[rows],
        "total": np.bincount(features, values, minlength=d_sae)[rows],
        "total_sq": np.bincount(features, values**2, minlength=d_sae)[rows],
        "maximum": maximum[rows],
        "histogram_cells": cells,
        "histogram_counts": counts,
        "l0_histogram": np.bincount(l0, minlength=1),
    }


def _add_ragged(a: NDArray[Any], b: NDArray[Any]) -> Ints:
    out = np.zeros(max(len(a), len(b)), np.int64)
    out[: len(a)] += a
    out[: len(b)] += b
    return out
