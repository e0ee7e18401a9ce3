"""One row is read in fewer passes than many; both must find the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.autoencoder import sparse
from neuroscope.sae.reading import FeatureReader

D_IN, D_SAE = 16, 200


def sae_with(threshold: Tensor, scale: float = 1.0, **options: object) -> SparseAutoencoder:
    torch.manual_seed(0)
    W_enc = scale * torch.randn(D_IN, D_SAE)
    return SparseAutoencoder(W_enc, torch.randn(D_SAE), threshold, **options)  # type: ignore[arg-type]


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
