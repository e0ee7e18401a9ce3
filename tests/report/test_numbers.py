"""The numbers of the report, from arrays that can be computed in the head."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from neuroscope.report import numbers
from neuroscope.report.numbers import Cells, Missing
from neuroscope.stats import CalibrationStats


def stats(n_tokens: int, n_fired: list[int], mean: float = 2.0) -> CalibrationStats:
    fired = np.array(n_fired, np.int64)
    maximum = np.where(fired > 0, mean, 0.0)
    return CalibrationStats.from_sums(n_tokens, fired, mean * fired, mean**2 * fired, maximum)


def test_features_are_dead_rare_or_always_on_by_their_firings() -> None:
    found = numbers.firing(stats(1000, [0, 0, 1, 9, 10, 500, 501, 1000]))
    assert isinstance(found, numbers.Firing)
    assert (found.dead, found.rare, found.always_on) == (2, 2, 2)
    assert found.rare_below == pytest.approx(-2)


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 10, 99, 1000, 10_000, 10**6, 10**7, 123_456_789, 10**12])
def test_every_feature_that_fired_is_in_one_bin(n_tokens: int) -> None:
    found = numbers.firing(stats(n_tokens, [0, 1, 1 + n_tokens // 3, n_tokens]))
    assert isinstance(found, numbers.Firing)
    assert found.counts.sum() == 3
    assert found.edges[-1] == 0
    assert len(found.edges) == len(found.counts) + 1


def test_a_bin_is_a_fifth_of_a_decade() -> None:
    found = numbers.firing(stats(1000, [150, 20, 20]))
    assert isinstance(found, numbers.Firing)
    filled = {
        (round(low, 1), round(high, 1)): int(count)
        for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
        if count
    }
    assert filled == {(-1.0, -0.8): 1, (-1.8, -1.6): 2}, "log10 of 0.15 is -0.82, of 0.02 -1.70"


def test_no_token_and_no_firing_are_said() -> None:
    assert numbers.firing(stats(0, [0])) == Missing("The sweep measured no token.")
    assert numbers.strength(stats(10, [0, 0])) == Missing("No feature fired.")


def test_one_feature_that_always_fires_is_a_report_too() -> None:
    found = numbers.firing(stats(1, [1]))
    assert isinstance(found, numbers.Firing)
    assert (found.features, found.always_on, found.rare) == (1, 1, 1)
    strength = numbers.strength(stats(1, [1]))
    assert isinstance(strength, numbers.Strength)
    assert strength.correlation is None
    assert strength.cells.counts.tolist() == [1]


def test_means_that_are_no_numbers_are_left_out() -> None:
    fired = np.array([5, 5, 5, 5], np.int64)
    mean = np.array([np.nan, np.inf, -1.0, 2.0])
    found = numbers.strength(CalibrationStats(10, fired, mean, mean, mean, mean, mean))
    assert isinstance(found, numbers.Strength)
    assert found.features == 1


def test_active_features_are_shares_of_tokens_with_their_mean() -> None:
    found = numbers.active_features({"chat": [1, 0, 3], "code": [0, 2], "empty": [0, 0], "none": []})
    assert isinstance(found, tuple)
    chat, code = found
    assert (chat.stratum, chat.tokens, chat.mean, chat.width) == ("chat", 4, 1.5, 1)
    assert chat.shares.tolist() == [0.25, 0, 0.75]
    assert code.shares.tolist() == [0, 1, 0]


def test_many_active_features_are_put_into_at_most_sixty_bins() -> None:
    counts = np.zeros(301, np.int64)
    counts[[0, 5, 6, 300]] = 1
    found = numbers.active_features({"chat": counts.tolist()})
    assert isinstance(found, tuple)
    assert found[0].width == 6
    assert found[0].shares[[0, 1, 50]].tolist() == [0.5, 0.25, 0.25]
    assert found[0].mean == (5 + 6 + 300) / 4
    assert isinstance(numbers.active_features({}), Missing)


def test_cells_count_points_by_whole_steps() -> None:
    found = Cells.of(np.array([0.1, 0.4, -0.1]), np.array([0.9, 0.6, 0.2]), (0.5, 0.5))
    assert found.x.tolist() == [-1, 0]
    assert found.y.tolist() == [0, 1]
    assert found.counts.tolist() == [1, 2]


def test_rank_correlation_is_spearmans() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        x, y = (random.integers(0, 6, 12).astype(float) for _ in range(2))
        assert numbers.rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic)
    x = np.arange(5.0)
    assert numbers.rank_correlation(x, x**3) == pytest.approx(1)
    assert numbers.rank_correlation(x, np.ones(5)) is None
    assert numbers.rank_correlation(x[:2], x[:2]) is None


def test_scores_have_a_mean_with_its_interval() -> None:
    found = numbers.scores({("tokens", "rule"): np.array([0.5, 0.7, np.nan, 0.9])})
    assert isinstance(found, tuple)
    (score,) = found
    assert (score.scored, score.failed) == (3, 1)
    assert score.mean == pytest.approx(0.7)
    assert score.median == pytest.approx(0.7)
    half = 1.959964 * 0.2 / 3**0.5
    assert (score.low, score.high) == (
        pytest.approx(0.7 - half, abs=1e-6),
        pytest.approx(0.7 + half, abs=1e-6),
    )
    assert score.counts.sum() == 3
    assert score.counts[10] == 1, "0.5 is in the bin that begins there"


def test_one_score_has_no_interval_and_none_has_no_mean() -> None:
    found = numbers.scores({("a", "rule"): np.array([1.0]), ("b", "rule"): np.array([np.nan])})
    assert isinstance(found, tuple)
    one, none = found
    assert (one.mean, one.low, one.high) == (1.0, None, None)
    assert one.counts[-1] == 1
    assert (none.mean, none.scored, none.failed) == (None, 0, 1)
    assert numbers.scores({}) == Missing("No label has a score.")


def test_coverage_says_what_came_late() -> None:
    found = numbers.coverage([(0, 0), (80, 5), (90, 6), (100, 9)], 12)
    assert isinstance(found, numbers.Coverage)
    assert found.points == ((80, 5), (90, 6), (100, 9))
    assert found.late == 3
    assert isinstance(numbers.coverage([(0, 0)], 12), Missing)


def test_a_long_sweep_is_drawn_with_few_points_its_ends_among_them() -> None:
    found = numbers.coverage([(10 * n, n) for n in range(1, 5001)], 6000)
    assert isinstance(found, numbers.Coverage)
    assert len(found.points) <= numbers.COVERAGE_POINTS
    assert found.points[0] == (10, 1)
    assert found.points[-1] == (50_000, 5000)
    assert [*found.points] == sorted(set(found.points))
