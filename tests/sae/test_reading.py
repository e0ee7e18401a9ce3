"""One row is read in fewer passes than many; both must find the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.autoencoder import sparse
from neuroscope.sae.reading import FeatureReader

D_IN, D_SAE = 16, 200


def sae_with(threshold: Tensor, scale: float = 1.0, **options: Any) -> SparseAutoencoder:
    torch.manual_seed(0)
    W_enc = scale * torch.randn(D_IN, D_SAE)
    return SparseAutoencoder(W_enc, torch.randn(D_SAE), threshold, **options)


@pytest.mark.parametrize("threshold", [-2.0, 0.0, 3.0, 1e9])
@pytest.mark.parametrize("input_norm", ["none", "rms"])
@pytest.mark.parametrize("k", [None, 7])
def test_one_row_is_what_encode_makes_of_it_to_the_last_bit(
    threshold: float, input_norm: str, k: int | None
) -> None:
    sae = sae_with(torch.full((D_SAE,), threshold), input_norm=input_norm, k=k)
    reader = FeatureReader(sae)
    for row in torch.randn(20, 1, D_IN):
        found, expected = reader.read(row)[0].acts, sparse(sae.encode(row))[0]
        assert found.indices.dtype == np.int32
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.values.tobytes() == expected.values.tobytes()


def test_a_feature_exactly_at_its_threshold_is_silent() -> None:
    sae = SparseAutoencoder(torch.tensor([[1.0, 1.0, 1.0]]), torch.zeros(3), torch.tensor([2.0, 1.9, -5.0]))
    acts = FeatureReader(sae).read(torch.tensor([[2.0]]))[0].acts
    assert acts.indices.tolist() == [1, 2]
    assert FeatureReader(sae).read(torch.zeros(1, 1))[0].acts.l0 == 0


def test_sums_beyond_float32_are_found_as_encode_finds_them() -> None:
    """Some are infinite, some infinite less infinite, which is no number: neither becomes silence."""
    sae = sae_with(torch.zeros(D_SAE), scale=1e38)
    row = torch.randn(1, D_IN) * 1e3
    found, expected = FeatureReader(sae).read(row)[0].acts, sparse(sae.encode(row))[0]
    assert not np.isfinite(expected.values).all()
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("input_norm", ["none", "rms", "layer_norm"])
def test_one_row_leaves_as_much_unexplained_as_it_does_among_others(input_norm: str) -> None:
    torch.manual_seed(1)
    weights: dict[str, Any] = {"W_dec": torch.randn(D_SAE, D_IN) / 200, "b_dec": torch.randn(D_IN)}
    reader = FeatureReader(sae_with(torch.ones(D_SAE), input_norm=input_norm, **weights))
    rows = torch.randn(8, D_IN)
    alone = [reader.read(row[None])[0].fvu for row in rows]
    assert alone == pytest.approx([reading.fvu for reading in reader.read(rows)], rel=1e-5)
    assert FeatureReader(reader.sae, decoder=False).read(rows[:1])[0].fvu is None


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_residual_that_is_not_finite_is_refused(rows: int, bad: float) -> None:
    residual = torch.zeros(rows, D_IN)
    residual[-1, 3] = bad
    with pytest.raises(ModelError, match="not finite"):
        FeatureReader(sae_with(torch.zeros(D_SAE))).read(residual)
