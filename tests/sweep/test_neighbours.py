"""Co-firing neighbours against counting in sets."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from neuroscope.sweep import neighbours as module
from neuroscope.sweep.neighbours import MIN_BOTH, neighbours


def pool_of(rows: list[tuple[str, int, list[int], list[int]]]) -> pl.DataFrame:
    schema = {
        "doc_id": pl.String,
        "position": pl.Int32,
        "features": pl.List(pl.Int32),
        "offsets": pl.List(pl.UInt8),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def random_pool(windows: int = 40, d_sae: int = 12) -> pl.DataFrame:
    """Windows of three documents that overlap, as hashes choose them."""
    generator = np.random.default_rng(0)
    fires = generator.random((3, 80, d_sae)) < 0.2
    rows = []
    for _ in range(windows):
        document, position = int(generator.integers(3)), int(generator.integers(12, 68))
        offset, feature = np.nonzero(fires[document, position - 12 : position + 13])
        rows.append((f"doc{document}", position, feature.tolist(), offset.tolist()))
    return pool_of(rows)


def slow_neighbours(pool: pl.DataFrame, d_sae: int, top: int) -> list[tuple[int, int, float, int]]:
    where: list[set[tuple[str, int]]] = [set() for _ in range(d_sae)]
    for doc_id, position, features, offsets in pool.iter_rows():
        for feature, offset in zip(features, offsets, strict=True):
            where[feature].add((doc_id, position + offset - 12))
    rows = []
    for feature in range(d_sae):
        pairs = []
        for other in range(d_sae):
            both = len(where[feature] & where[other])
            if other != feature and both >= MIN_BOTH:
                pairs.append((-both / len(where[feature] | where[other]), other, both))
        rows += [(feature, other, -share, both) for share, other, both in sorted(pairs)[:top]]
    return rows


@pytest.mark.parametrize("at_once", [module.PAIRS_AT_ONCE, 30, 1])
def test_neighbours_are_the_largest_jaccard_indices(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", at_once)
    pool = random_pool()
    found = neighbours(pool, 12, top=4)
    assert found.columns == ["feature", "other", "cofiring", "n_both"]
    assert list(found.iter_rows()) == slow_neighbours(pool, 12, 4)


def test_the_width_of_the_sae_changes_no_neighbour() -> None:
    pool = random_pool()
    assert neighbours(pool, 2**20, top=4).equals(neighbours(pool, 12, top=4))


def test_a_token_in_several_windows_counts_once() -> None:
    windows = [("d", position, [0, 1], [20 - position, 20 - position]) for position in (8, 9, 10, 11)]
    assert neighbours(pool_of(windows), 2).is_empty()


def test_a_pool_without_firings_has_no_neighbours() -> None:
    assert neighbours(pool_of([("d", 5, [], [])]), 3).is_empty()
    assert neighbours(pool_of([]), 3).is_empty()
