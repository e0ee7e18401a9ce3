"""Which features fire on the same tokens, counted over the pool of held-out windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.examples import HALF_WINDOW, rank_in_group

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
    parts = [pl.DataFrame(schema=SCHEMA)]
    for first, counts in _cofirings(token, feature, d_sae):
        local, other = np.nonzero(counts >= MIN_BOTH)
        both = counts[local, other]
        this = local + first
        jaccard = both / (fired[this] + fired[other] - both)
        order = np.lexsort((other, -jaccard, this))
        order = order[this[order] != other[order]]
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
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Blocks of the matrix of joint firings: (first feature of the block, counts [block, d_sae])."""
    l0 = np.bincount(token) if len(token) else np.zeros(0, np.int64)
    starts = np.cumsum(l0) - l0
    by_feature = np.argsort(feature, kind="stable")
    pairs = np.bincount(feature, l0[token] if len(token) else None, minlength=d_sae)
    bounds = np.searchsorted(feature[by_feature], np.arange(d_sae + 1))
    first = 0
    while first < d_sae:
        within = np.searchsorted(np.cumsum(pairs[first:]), PAIRS_AT_ONCE)
        end = first + max(1, min(int(within), PAIRS_AT_ONCE // d_sae))
        end = min(end, d_sae)
        rows = by_feature[bounds[first] : bounds[end]]
        sizes = l0[token[rows]]
        ends = np.cumsum(sizes)
        index = np.arange(int(sizes.sum())) + np.repeat(starts[token[rows]] - (ends - sizes), sizes)
        cell = np.repeat(feature[rows] - first, sizes) * d_sae + feature[index]
        yield first, np.bincount(cell, minlength=(end - first) * d_sae).reshape(end - first, d_sae)
        first = end
