"""Which features are shown: filters, order, ties and what was suppressed, on numbers one can check in the head."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neuroscope.errors import ConfigError
from neuroscope.ranking import FILTERS, Ranking, Selection, select
from neuroscope.sae import SparseActs
from neuroscope.stats import CalibrationStats

N_TOKENS = 1000


def acts(**values: float) -> SparseActs:
    """`acts(f3=9.0)` is feature 3 at 9.0."""
    items = sorted((int(name[1:]), value) for name, value in values.items())
    return SparseActs(
        np.array([index for index, _ in items], np.int32), np.array([value for _, value in items], np.float32)
    )


def stats_of(features: list[tuple[float, float, float]]) -> CalibrationStats:
    """Statistics of features given as (firing rate, mean when firing, standard deviation when firing)."""
    rate, mean, deviation = (np.array(column) for column in zip(*features, strict=True))
    n_fired = np.rint(rate * N_TOKENS).astype(np.int64)
    return CalibrationStats.from_sums(
        N_TOKENS, n_fired, mean * n_fired, (deviation**2 + mean**2) * n_fired, mean + 3 * deviation
    )


def shown(selection: Selection) -> list[int]:
    found: list[int] = selection.indices.tolist()
    return found


def test_calibration_frequency_filter() -> None:
    """Features firing on more than half of the tokens are dropped, those under and at one half are kept."""
    stats = stats_of([(0.9, 1, 1), (0.51, 1, 1), (0.5, 1, 1), (0.49, 1, 1), (0.01, 1, 1)])
    token = acts(f0=50.0, f1=40.0, f2=3.0, f3=2.0, f4=1.0)
    selection = select(token, Ranking(filter="frequency", threshold=0.5), stats)
    assert shown(selection) == [2, 3, 4]
    assert selection.activations.tolist() == [3.0, 2.0, 1.0]
    assert selection.filtered_count == 2


def test_calibration_surprise_scoring() -> None:
    """100 against a usual 95 +- 10 is less surprising than 20 against a usual 5 +- 3."""
    stats = stats_of([(0.5, 95, 10), (0.1, 5, 3)])
    token = acts(f0=100.0, f1=20.0)
    selection = select(token, Ranking(filter="surprise"), stats)
    assert shown(selection) == [1, 0]
    assert selection.surprise == pytest.approx([5.0, 0.5], rel=1e-6)
    assert shown(select(token, Ranking(filter="none"), stats)) == [0, 1]


ALWAYS, USUAL, RARE, UNKNOWN = 0, 1, 2, 3
STATS = stats_of([(0.9, 10, 1), (0.2, 10, 5), (0.05, 2, 1), (0.005, 2, 1)])
TOKEN = acts(f0=40.0, f1=15.0, f2=5.0, f3=20.0)
"""Surprise 30, 1, 3, and none for the feature that fired 5 times."""


@pytest.mark.parametrize(
    ("name", "order", "filtered"),
    [
        ("none", [ALWAYS, UNKNOWN, USUAL, RARE], 0),
        ("frequency", [UNKNOWN, USUAL, RARE], 1),
        ("combined", [UNKNOWN, USUAL, RARE], 1),
        ("surprise", [ALWAYS, RARE, USUAL, UNKNOWN], 0),
        ("frequency_surprise", [RARE, USUAL, UNKNOWN], 1),
    ],
)
def test_filters_drop_and_order(name: str, order: list[int], filtered: int) -> None:
    selection = select(TOKEN, Ranking(filter=name), STATS)
    assert shown(selection) == order
    assert selection.filtered_count == filtered


def test_surprise_is_unknown_under_ten_firings_and_then_ranks_last() -> None:
    selection = select(TOKEN, Ranking(filter="surprise"), STATS)
    assert selection.surprise is not None
    assert selection.surprise[:3] == pytest.approx([30, 3, 1], rel=1e-6)
    assert math.isnan(selection.surprise[3])


@pytest.mark.parametrize("name", FILTERS)
def test_without_statistics_every_filter_is_none(name: str) -> None:
    selection = select(TOKEN, Ranking(filter=name), None)
    assert shown(selection) == [ALWAYS, UNKNOWN, USUAL, RARE]
    assert selection.surprise is None
    assert selection.filtered_count == 0


def test_only_features_suppressed_before_the_last_one_shown_are_counted() -> None:
    stats = stats_of([(0.9, 1, 1), (0.1, 1, 1), (0.9, 1, 1), (0.1, 1, 1), (0.9, 1, 1)])
    token = acts(f0=5.0, f1=4.0, f2=3.0, f3=2.0, f4=1.0)
    assert select(token, Ranking(top_k=1), stats).filtered_count == 1
    assert select(token, Ranking(top_k=2), stats).filtered_count == 2
    assert select(token, Ranking(top_k=3), stats).filtered_count == 3  # all of them, for want of a third


def test_ties_go_to_the_lower_index() -> None:
    assert shown(select(acts(f9=1.0, f2=1.0, f5=1.0), Ranking(top_k=2), None)) == [2, 5]


def test_min_activation_and_only_narrow_what_is_ranked() -> None:
    assert shown(select(TOKEN, Ranking(filter="none", min_activation=15.0), STATS)) == [0, 3, 1]
    narrowed = select(TOKEN, Ranking(only=frozenset({ALWAYS, RARE, 999})), STATS)
    assert shown(narrowed) == [RARE]
    assert narrowed.filtered_count == 1
    assert shown(select(TOKEN, Ranking(only=frozenset()), STATS)) == []


def test_a_token_without_features_selects_none() -> None:
    for name in FILTERS:
        selection = select(acts(), Ranking(filter=name), STATS)
        assert (shown(selection), selection.filtered_count) == ([], 0)


def test_selection_agrees_with_the_slow_obvious_version() -> None:
    random = np.random.default_rng(0)
    stats = stats_of([(rate, 5.0, 2.0) for rate in random.random(40)])
    for _ in range(200):
        indices = np.flatnonzero(random.random(40) < 0.5).astype(np.int32)
        values = random.choice([1.0, 2.0, 3.0, 4.0], len(indices)).astype(np.float32)
        top_k = int(random.integers(1, 25))
        pairs = sorted(zip(indices.tolist(), values.tolist(), strict=True), key=lambda p: (-p[1], p[0]))
        kept, skipped = [], 0
        for index, value in pairs:
            if len(kept) == top_k:
                break
            if stats.firing_rate[index] > 0.5:
                skipped += 1
            else:
                kept.append((index, value))
        selection = select(SparseActs(indices, values), Ranking(top_k=top_k), stats)
        assert list(zip(selection.indices, selection.activations, strict=True)) == kept
        assert selection.filtered_count == skipped


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"filter": "loudest"}, "'loudest' is unknown; choose one of none, frequency, surprise"),
        ({"threshold": 1.5}, "threshold is 1.5; it must be a share of tokens from 0 to 1"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"threshold": "0.5"}, "threshold is '0.5'"),
        ({"top_k": 0}, "top_k is 0; it must be a whole number of 1 or more"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"top_k": True}, "top_k is True"),
        ({"min_activation": -1.0}, "min_activation is -1.0"),
        ({"min_activation": math.inf}, "min_activation is inf"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Ranking(**setting)


def test_equal_rankings_are_one_key() -> None:
    assert len({Ranking(only=frozenset({1})), Ranking(only=frozenset({1})), Ranking()}) == 2
