"""Per-feature statistics: figures against the slow obvious version, exact merging, and the file form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from neuroscope.errors import ArtefactError
from neuroscope.sae import SparseAutoencoder
from neuroscope.stats import (
    HISTOGRAM_BINS,
    HISTOGRAM_EDGES,
    MIN_FIRINGS,
    CalibrationStats,
    FeatureStats,
    read_stats_document,
    sparse_sums,
)


def dense_acts(tokens: int = 200, d_sae: int = 12, seed: int = 0) -> np.ndarray:
    """Activations [tokens, d_sae]: feature 0 never fires, feature 1 always fires at 2."""
    generator = np.random.default_rng(seed)
    acts = np.where(generator.random((tokens, d_sae)) < 0.2, generator.gamma(2.0, 3.0, (tokens, d_sae)), 0.0)
    acts[:, 0], acts[:, 1] = 0.0, 2.0
    return acts.astype(np.float32)


def add_dense(stats: FeatureStats, acts: np.ndarray) -> None:
    rows, features = np.nonzero(acts)
    stats.add(features, acts[rows, features], np.bincount(rows, minlength=len(acts)))


def accumulated(acts: np.ndarray) -> FeatureStats:
    stats = FeatureStats(acts.shape[1])
    add_dense(stats, acts)
    return stats


def arrays_of(stats: CalibrationStats) -> dict[str, np.ndarray]:
    names = ("n_fired", "mean_firing", "variance_firing", "mean_all", "variance_all", "max_activation")
    return {name: getattr(stats, name) for name in names}


def test_calibration_computes_firing_rates() -> None:
    """100 inputs through a small SAE. The original specification says that the rates sum to L0 * tokens / width;
    they are shares of tokens, so they sum to the mean L0, whatever the number of tokens and the width."""
    generator = torch.Generator().manual_seed(0)
    W_enc = torch.randn(16, 32, generator=generator)
    sae = SparseAutoencoder(W_enc, torch.zeros(32), torch.full((32,), 4.0))
    acts = sae.encode(torch.randn(100, 16, generator=generator)).numpy()
    stats = accumulated(acts).finish()
    assert stats.n_tokens == 100
    assert (stats.firing_rate >= 0).all()
    assert (stats.firing_rate <= 1).all()
    mean_l0 = (acts > 0).sum(axis=1).mean()
    assert mean_l0 > 1
    assert stats.firing_rate.sum() == pytest.approx(mean_l0)


def test_calibration_persistence(tmp_path: Path) -> None:
    stats = accumulated(dense_acts()).finish()
    stats.to_json(tmp_path / "stats.json", sae_id="org/sae", fingerprint={"layer": 20}, stratum="chat")
    loaded = CalibrationStats.from_json(tmp_path / "stats.json")
    assert loaded.n_tokens == stats.n_tokens
    for name, array in arrays_of(stats).items():
        assert np.array_equal(array, getattr(loaded, name), equal_nan=True), name
    document = read_stats_document(tmp_path / "stats.json")
    header = {key: document[key] for key in ("sae_id", "fingerprint", "stratum", "width")}
    assert header == {"sae_id": "org/sae", "fingerprint": {"layer": 20}, "stratum": "chat", "width": 12}
    assert document["features"]["0"]["mean"] is None
    assert document["features"]["1"] == {
        "firing_rate": 1.0,
        "mean": 2.0,
        "variance": 0.0,
        "mean_all": 2.0,
        "variance_all": 0.0,
        "max_activation": 2.0,
        "n_fired": 200,
    }


def test_figures_equal_the_dense_computation() -> None:
    acts = dense_acts()
    stats = accumulated(acts).finish()
    exact = acts.astype(np.float64)
    for feature in range(acts.shape[1]):
        fired = exact[:, feature][exact[:, feature] > 0]
        assert stats.n_fired[feature] == len(fired)
        assert stats.mean_all[feature] == pytest.approx(exact[:, feature].mean())
        assert stats.variance_all[feature] == pytest.approx(exact[:, feature].var())
        assert stats.max_activation[feature] == exact[:, feature].max()
        if len(fired):
            assert stats.mean_firing[feature] == pytest.approx(fired.mean())
            assert stats.variance_firing[feature] == pytest.approx(fired.var())


def test_a_feature_that_never_fires_has_no_mean_when_firing() -> None:
    stats = accumulated(dense_acts()).finish()
    assert np.isnan(stats.mean_firing[0])
    assert np.isnan(stats.variance_firing[0])
    assert np.isnan(stats.log_density[0])
    assert stats.mean_all[0] == stats.max_activation[0] == stats.firing_rate[0] == 0.0
    assert stats.log_density[1] == 0.0


def test_statistics_of_no_tokens_are_zero_rates() -> None:
    stats = FeatureStats(3).finish()
    assert stats.firing_rate.tolist() == [0, 0, 0]
    assert stats.mean_all.tolist() == [0, 0, 0]


def test_parts_merge_to_the_whole() -> None:
    acts = dense_acts(tokens=300)
    whole = accumulated(acts)
    merged = FeatureStats(acts.shape[1])
    for part in np.split(acts, [7, 90, 91]):
        merged.merge(accumulated(part))
    assert merged.n_tokens == whole.n_tokens
    for name in ("n_fired", "histogram", "l0_histogram", "maximum"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name)), name
    np.testing.assert_allclose(merged.total, whole.total, rtol=1e-13)
    np.testing.assert_allclose(merged.total_sq, whole.total_sq, rtol=1e-13)


def test_the_sparse_form_gives_everything_back() -> None:
    stats = accumulated(dense_acts())
    copy = FeatureStats(stats.d_sae)
    copy.merge_sparse(stats.to_sparse())
    for name in ("n_fired", "total", "total_sq", "maximum", "histogram", "l0_histogram"):
        assert np.array_equal(getattr(copy, name), getattr(stats, name)), name
    assert 0 not in stats.to_sparse()["features"]


def test_sums_of_firings_are_those_of_the_accumulator_bit_for_bit() -> None:
    acts = dense_acts()
    rows, features = np.nonzero(acts)
    sums = sparse_sums(acts.shape[1], features, acts[rows, features], np.bincount(rows, minlength=len(acts)))
    kept = accumulated(acts).to_sparse()
    assert sums.keys() == kept.keys()
    for name, array in sums.items():
        assert np.array_equal(array, kept[name]), name
        assert array.dtype == kept[name].dtype, name


def test_the_l0_histogram_counts_tokens_by_their_number_of_firings() -> None:
    acts = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [2, 0, 0]], np.float32)
    assert accumulated(acts).l0_histogram.tolist() == [1, 2, 0, 1]


def test_histogram_bins_are_half_octaves_and_nothing_is_lost() -> None:
    assert HISTOGRAM_EDGES[0] == 2**-8
    assert HISTOGRAM_EDGES[-1] == 2**16
    assert HISTOGRAM_EDGES[2] / HISTOGRAM_EDGES[0] == 2
    values = np.array([[2**-9], [2**-8], [1.0], [1.5], [2.0], [2**17]], np.float32)
    histogram = accumulated(values).histogram[0]
    assert len(histogram) == HISTOGRAM_BINS
    assert np.flatnonzero(histogram).tolist() == [0, 1, 17, 18, 19, 49]
    assert histogram.sum() == 6


def test_variance_is_not_negative_for_a_large_constant() -> None:
    acts = np.full((1000, 1), 12345.678, np.float32)
    stats = accumulated(acts).finish()
    assert stats.variance_firing[0] >= 0
    assert stats.variance_firing[0] < 1e-3


def test_surprise_is_a_z_score_of_the_firing_population_and_nan_with_few_firings() -> None:
    n_fired = np.array([MIN_FIRINGS, MIN_FIRINGS - 1, MIN_FIRINGS])
    values = np.array([10.0, 10.0, 4.0])
    stats = CalibrationStats.from_sums(
        1000, n_fired, values * n_fired, (values**2 + 4.0) * n_fired, values
    )  # variance 4 each, so one standard deviation is 2
    z = stats.surprise(np.array([0, 1, 2]), np.array([14.0, 14.0, 3.0], np.float32))
    assert z[0] == pytest.approx(2.0, abs=1e-5)
    assert np.isnan(z[1])
    assert z[2] == pytest.approx(-0.5, abs=1e-5)


def test_a_stats_file_of_the_original_shape_is_enough(tmp_path: Path) -> None:
    features = {
        "0": {"firing_rate": 0.25, "mean": 4.0, "variance": 1.0},
        "1": {"firing_rate": 0.0, "mean": 0.0, "variance": 0.0},
    }
    path = tmp_path / "stats.json"
    path.write_text(json.dumps({"n_tokens": 100, "features": features}))
    stats = CalibrationStats.from_json(path)
    assert stats.n_fired.tolist() == [25, 0]
    assert stats.mean_all.tolist() == [1.0, 0.0]
    assert stats.variance_all[0] == pytest.approx(0.25 * 17 - 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "holds a JSON list"),
        ("{}", "is not a stats file"),
        ('{"n_tokens": 5, "features": {"1": {}}}', "is not a stats file"),
        (
            '{"n_tokens": 5, "features": {"0": {"firing_rate": 2, "mean": 0, "variance": 0}}}',
            "a firing rate is outside 0 to 1",
        ),
    ],
)
def test_a_file_that_is_not_stats_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "stats.json"
    path.write_text(content)
    with pytest.raises(ArtefactError, match=message) as caught:
        CalibrationStats.from_json(path)
    assert str(path) in str(caught.value)
    assert "neuroscope calibrate run" in str(caught.value) or content == "[]"


def test_a_missing_stats_file_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="neuroscope calibrate run"):
        CalibrationStats.from_json(tmp_path / "absent.json")


def test_arrays_of_unequal_length_are_refused() -> None:
    stats = accumulated(dense_acts()).finish()
    arrays = arrays_of(stats) | {"mean_all": np.zeros(3)}
    with pytest.raises(ValueError, match=r"\[12\]"):
        CalibrationStats(stats.n_tokens, *arrays.values())
