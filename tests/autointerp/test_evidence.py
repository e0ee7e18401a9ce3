"""Reading what the sweep left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autointerp.emulated import FEATURES, NUMBER, Sweep
from neuroscope.autointerp.evidence import (
    CENTRE,
    ExampleTable,
    PoolSide,
    held_out_documents,
    is_for_labelling,
    read_firing_rates,
    read_logits,
    window_array,
)
from neuroscope.errors import ArtefactError


def test_examples_are_those_of_the_feature_in_order_of_rank(emulated_sweep: Sweep) -> None:
    table = ExampleTable.read(emulated_sweep.examples, "top", 20)
    paris = table.of(NUMBER["paris"])
    assert 0 < len(paris) <= 20
    assert {emulated_sweep.world.text(window[CENTRE]) for window in paris.windows.tolist()} == {" Paris"}
    assert (np.diff(paris.activations) <= 0).all()
    assert len(table.of(NUMBER["dead"])) == 0
    assert len(table.of(10_000)) == 0


def test_no_more_examples_are_read_than_asked_for(emulated_sweep: Sweep) -> None:
    assert len(ExampleTable.read(emulated_sweep.examples, "top", 3).of(NUMBER["digits"])) == 3


def test_windows_with_nulls_and_windows_with_minus_one_are_the_same() -> None:
    rows = [[None, 3, 4], [5, 6, None]]
    nulls = pl.Series(rows, dtype=pl.Array(pl.Int32, 3))
    lists = pl.Series([[-1, 3, 4], [5, 6, -1]], dtype=pl.List(pl.Int32))
    assert window_array(nulls).tolist() == window_array(lists).tolist() == [[-1, 3, 4], [5, 6, -1]]
    assert window_array(nulls.head(0)).shape == (0, 25)


def test_the_sides_of_the_pool_share_no_document(emulated_sweep: Sweep) -> None:
    ours, theirs = (PoolSide.read(emulated_sweep.pool, labelling=side) for side in (True, False))
    assert not set(ours.documents) & set(theirs.documents)
    assert len(ours.documents) + len(theirs.documents) == len(pl.read_parquet(emulated_sweep.pool))
    assert all(map(is_for_labelling, ours.documents))
    assert min(len(ours.documents), len(theirs.documents)) > 200


def test_the_pool_knows_where_each_feature_fires(emulated_sweep: Sweep) -> None:
    """The oracle: go over every window and token of the pool."""
    side = PoolSide.read(emulated_sweep.pool, labelling=True)
    text = emulated_sweep.world.text
    expected = [
        row
        for row, window in enumerate(side.windows.tolist())
        if any(t >= 0 and text(t) == " Paris" for t in window)
    ]
    assert side.active(NUMBER["paris"]).tolist() == expected
    assert side.active(NUMBER["dead"]).tolist() == []


def test_firings_are_distinct_tokens_of_permitted_documents(emulated_sweep: Sweep) -> None:
    side = PoolSide.read(emulated_sweep.pool, labelling=True)
    every = side.firings(NUMBER["digits"], limit=10_000)
    centres = every.windows[np.arange(len(every)), every.at]
    assert all(emulated_sweep.world.text(token).strip().isdigit() for token in centres.tolist())
    assert (every.activations > 0).all()
    banned = frozenset(side.documents[:200])
    fewer = side.firings(NUMBER["digits"], without=banned, limit=10_000)
    assert 0 < len(fewer) < len(every)
    assert len(side.firings(NUMBER["digits"], limit=7)) == 7
    windows_with_digits = side.window[side.rows[NUMBER["digits"]]]
    assert len(every) < len(windows_with_digits)


def test_held_out_documents_are_named_for_each_feature(emulated_sweep: Sweep) -> None:
    documents = held_out_documents(emulated_sweep.examples)
    frame = pl.read_parquet(emulated_sweep.examples).filter(
        (pl.col("feature") == NUMBER["self"]) & (pl.col("kind") == "held_out")
    )
    assert documents[NUMBER["self"]] == frozenset(frame["doc_id"])
    assert NUMBER["dead"] not in documents


def test_logits_and_rates_are_read_and_may_be_absent(emulated_sweep: Sweep) -> None:
    promoted, suppressed = read_logits(emulated_sweep.logits)[NUMBER["before of"]]
    assert promoted == (" of", " in", " near")
    assert suppressed == (" the", " the", " the")
    rates = read_firing_rates(emulated_sweep.stats)
    assert len(rates) == len(FEATURES)
    assert rates[NUMBER["dead"]] == 0.0
    assert 0.8 < rates[NUMBER["always"]] < 1.0
    assert read_logits(None) == read_firing_rates(None) == {}


def test_a_file_that_is_missing_or_of_another_kind_is_named(emulated_sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"nothing\.parquet"):
        PoolSide.read(tmp_path / "nothing.parquet", labelling=True)
    with pytest.raises(ArtefactError, match="lacks the columns feature, kind, rank, activation"):
        ExampleTable.read(emulated_sweep.pool, "top", 20)
