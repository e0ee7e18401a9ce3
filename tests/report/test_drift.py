"""Firing rates of one kind of text against another: chance is no drift, and what differs is counted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from test_numbers import stats

from neuroscope.report.drift import Drift, drift, log2_ratio
from neuroscope.report.numbers import Missing


def found(strata: dict[str, tuple[int, list[int]]], wanted: str = "chat") -> Drift:
    made = drift({name: stats(*given) for name, given in strata.items()}, wanted)
    assert isinstance(made, Drift)
    return made


def test_rates_that_differ_more_than_twofold_are_counted() -> None:
    made = found({"chat": (100, [20, 20, 20, 20, 40]), "code": (200, [40, 80, 82, 20, 0])})
    (pair,) = made.pairs
    assert (pair.a, pair.b, pair.compared) == ("chat", "code", 5)
    assert pair.differ == 2, "0.41 against 0.2, and 0 against 0.4; 0.4 and 0.1 are just twice and half"
    assert pair.share == 0.4


def test_features_with_too_few_firings_are_not_compared() -> None:
    made = found({"chat": (100, [9, 10, 0]), "code": (100, [9, 10, 20])})
    (pair,) = made.pairs
    assert pair.compared == 2, "18 firings over both are 9 in each; 20 are 10"
    assert pair.cells.counts.sum() == 2
    assert made.where.tolist() == ["", "", "code"]
    nothing = found({"chat": (10, [1]), "code": (10, [1])}).pairs[0]
    assert (nothing.compared, nothing.share, nothing.correlation) == (0, None, None)


def test_the_ratio_is_that_of_rates_and_none_counts_as_half_a_firing() -> None:
    ratio = log2_ratio(stats(100, [20, 40, 0]), stats(200, [80, 20, 64]))
    assert ratio == pytest.approx([1, -2, 6])


def test_the_reference_is_the_wanted_one_else_that_with_most_tokens() -> None:
    strata = {"chat": (100, [20]), "code": (300, [60]), "prose": (200, [40])}
    made = found(strata)
    assert made.reference == "chat"
    assert [(pair.a, pair.b) for pair in made.pairs] == [
        ("chat", "code"),
        ("chat", "prose"),
        ("code", "prose"),
    ]
    assert [pair.b for pair in made.shown] == ["code", "prose"]
    assert found(strata, "poems").reference == "code"


def test_a_feature_differs_most_where_its_ratio_is_largest() -> None:
    made = found({"chat": (100, [20, 20]), "code": (100, [40, 20]), "prose": (100, [40, 2])})
    assert made.log2_ratio == pytest.approx([1, np.log2(0.1)])
    assert made.where.tolist() == ["code", "prose"]


@pytest.mark.parametrize("strata", [{}, {"chat": (10, [1])}, {"chat": (10, [1]), "code": (0, [0])}])
def test_two_kinds_of_text_are_needed(strata: dict[str, tuple[int, list[int]]]) -> None:
    made = drift({name: stats(*given) for name, given in strata.items()}, "chat")
    assert isinstance(made, Missing)
    assert "Two kinds of text are needed" in made.reason


def test_the_correlation_is_of_all_that_fired() -> None:
    (pair,) = found({"chat": (100, [1, 2, 3, 0, 0]), "code": (100, [1, 2, 3, 4, 0])}).pairs
    assert pair.compared == 0
    assert pair.correlation == pytest.approx(spearmanr([1, 2, 3, 0], [1, 2, 3, 4]).statistic)
