"""Which features fire on the same tokens, counted over the pool of held-out windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.examples import HALF_WINDOW, rank_in_group
from neuroscope.sweep.activations import expand

MIN_BOTH = 3
"""Pairs seen together on fewer tokens are chance: two features that each fired once would be identical."""

PAIRS_AT_ONCE = 4_000_000

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "feature": pl.Int32,
    "other": pl.Int32,
    "cofiring": pl.Float64,
    "n_both": pl.Int64,
}


def neighbours(pool: pl.DataFrame, d_sae: int, *, top: int = 10) -> pl.DataFrame:
    """For each feature the `top` others it fires with most, by the Jaccard index of their tokens.

    `pool` has doc_id, position, features and offsets (see `sweep.merging.pool_frame`); a token in several
    windows counts once. Columns: feature, other, cofiring, n_both; sorted by feature, then falling
    cofiring.
    """
    token, feature = _distinct_firings(pool)
    fired = np.bincount(feature, minlength=d_sae)
    often = fired[feature] >= MIN_BOTH
    parts = [pl.DataFrame(schema=SCHEMA)]
    for this, other, both in _cofirings(token[often], feature[often], d_sae):
        jaccard = both / (fired[this] + fired[other] - both)
        order = np.lexsort((other, -jaccard, this))
        order = order[(this[order] != other[order]) & (both[order] >= MIN_BOTH)]
        best = order[rank_in_group(this[order]) < top]
        columns = (this[best], other[best], jaccard[best], both[best])
        parts.append(pl.DataFrame(dict(zip(SCHEMA, columns, strict=True))).cast(pl.Schema(SCHEMA)))
    return pl.concat(parts)


def _distinct_firings(pool: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(token, feature) pairs of the pool, each once, ordered by token."""
    firings = pool.select("doc_id", "position", "features", "offsets").explode("features", "offsets")
    firings = firings.drop_nulls("features").select(
        "doc_id",
        at=pl.col("position") + pl.col("offsets").cast(pl.Int32) - HALF_WINDOW,
        feature=pl.col("features").cast(pl.Int64),
    )
    firings = firings.unique().sort("doc_id", "at", "feature")
    token = firings.select(pl.struct("doc_id", "at").rle_id().cast(pl.Int64)).to_series()
    return token.to_numpy(), firings["feature"].to_numpy()


def _cofirings(
    token: NDArray[np.int64], feature: NDArray[np.int64], d_sae: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs of features with the tokens they share, (this, other, both), in blocks that ascend in `this`.

    Blocks are cut by their pairs, so that time and memory follow what fired and not the width of the SAE.
    """
    l0 = np.bincount(token) if len(token) else np.zeros(0, np.int64)
    starts = np.cumsum(l0) - l0
    by_feature = np.argsort(feature, kind="stable")
    names, bounds = np.unique(feature[by_feature], return_index=True)
    pairs = np.add.reduceat(l0[token[by_feature]], bounds) if len(bounds) else bounds
    ends = np.cumsum(pairs)
    bounds = np.append(bounds, len(feature))
    first = 0
    while first < len(names):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
        rows = by_feature[bounds[first] : bounds[last]]
        sizes = l0[token[rows]]
        cell = np.repeat(feature[rows], sizes) * d_sae + feature[expand(starts[token[rows]], sizes)]
        cells, both = _counted(cell, int(names[first]) * d_sae, int(names[last - 1] + 1) * d_sae)
        yield cells // d_sae, cells % d_sae, both
        first = last


def _counted(cells: NDArray[np.int64], start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct cells of start to stop, ascending, and how often each is there."""
    if stop - start > 4 * PAIRS_AT_ONCE:
        return np.unique(cells, return_counts=True)
    counts = np.bincount(cells - start, minlength=stop - start)
    found = np.flatnonzero(counts)
    return found + start, counts[found]
