"""The encoder's formula, by numbers a reader can check in the head and against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neuroscope.errors import SAEFormatError
from neuroscope.sae import SparseAutoencoder, fvu, sparse, top_k
from neuroscope.sae.norms import INPUT_NORMS


def two_features(**changes: object) -> SparseAutoencoder:
    """d_in 2, d_sae 2: feature 0 reads x0, feature 1 reads 2 * x1 - 1; thresholds 0.5 and 1."""
    weights = {
        "W_enc": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        "b_enc": torch.tensor([0.0, -1.0]),
        "threshold": torch.tensor([0.5, 1.0]),
        "W_dec": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        "b_dec": torch.tensor([10.0, 20.0]),
    }
    return SparseAutoencoder(**{**weights, **changes})  # type: ignore[arg-type]


def random_sae(d_in: int = 64, d_sae: int = 256) -> SparseAutoencoder:
    generator = torch.Generator().manual_seed(0)
    W_enc = torch.randn(d_in, d_sae, generator=generator) / d_in**0.5
    return SparseAutoencoder(
        W_enc,
        torch.randn(d_sae, generator=generator) * 0.1,
        torch.rand(d_sae, generator=generator) + 1.0,
        W_enc.T.contiguous(),
        torch.randn(d_in, generator=generator),
    )


def test_sae_encode_known_input() -> None:
    sae = random_sae(2304, 512)
    x = torch.linspace(-1, 1, 2304).reshape(1, 2304)

    acts = sae.encode(x)

    assert acts.shape == (1, 512)
    assert (acts == 0).float().mean() > 0.5
    reference = x.double().numpy() @ sae.W_enc.double().numpy() + sae.b_enc.double().numpy()
    reference = np.where(reference > sae.threshold.double().numpy(), np.maximum(reference, 0), 0)
    np.testing.assert_allclose(acts.numpy(), reference, atol=1e-5)


def test_sae_jumprelu_activation() -> None:
    acts = two_features().encode(torch.tensor([[0.4, 0.9], [0.6, 1.1]]))

    # pre = [0.4, 0.8] is below both thresholds; [0.6, 1.2] above: passed through, not set to one or shifted.
    torch.testing.assert_close(acts, torch.tensor([[0.0, 0.0], [0.6, 1.2]]))


def test_a_value_equal_to_its_threshold_is_off() -> None:
    assert two_features().encode(torch.tensor([0.5, 1.0])).tolist() == [0.0, 0.0]


def test_a_negative_value_above_a_zero_threshold_cannot_be() -> None:
    sae = two_features(threshold=torch.zeros(2))
    assert sae.encode(torch.tensor([-3.0, 0.0])).tolist() == [0.0, 0.0]


def test_sae_deterministic() -> None:
    sae = random_sae()
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sae.encode(x), sae.encode(x))


def test_sae_topk_extraction() -> None:
    acts = random_sae().encode(3 * torch.ones(64))
    assert (acts > 0).sum() > 10

    indices, values = top_k(acts, 10)

    assert len(indices) == 10
    assert values.tolist() == sorted(values.tolist(), reverse=True)
    assert (values > 0).all()
    assert values.tolist() == acts.sort(descending=True).values[:10].tolist()
    assert acts[indices].tolist() == values.tolist()


def test_top_k_of_a_token_with_two_active_features_is_two() -> None:
    indices, values = top_k(torch.tensor([0.0, 2.0, 0.0, 3.0]), 10)
    assert (indices.tolist(), values.tolist()) == ([3, 1], [3.0, 2.0])


def test_sparse_keeps_active_features_in_order_one_entry_a_token() -> None:
    tokens = sparse(torch.tensor([[0.0, 2.0, 1.0], [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]]))
    assert [t.indices.tolist() for t in tokens] == [[1, 2], [], [0]]
    assert [t.values.tolist() for t in tokens] == [[2.0, 1.0], [], [4.0]]
    assert [t.l0 for t in tokens] == [2, 0, 1]


def test_encoding_a_bfloat16_residual_is_done_in_float32() -> None:
    x = torch.tensor([300.0, 1.0], dtype=torch.bfloat16)
    acts = two_features().encode(x)
    assert acts.dtype == torch.float32
    assert acts[0] == 300.0


def test_rms_input_norm_divides_each_token_by_its_root_mean_square() -> None:
    sae = two_features(input_norm="rms")
    # [3, 4]: mean square 12.5; pre = [3, 2 * 4 - 12.5**.5] / 12.5**.5
    torch.testing.assert_close(
        sae.encode(torch.tensor([3.0, 4.0])), torch.tensor([3.0, 8.0]) / 12.5**0.5 - torch.tensor([0.0, 1.0])
    )


@pytest.mark.parametrize(
    ("norm", "normed"),
    [
        ("none", [1.0, 5.0]),
        ("rms", [1 / 13**0.5, 5 / 13**0.5]),  # mean square 13
        ("layer_norm", [-(2**-0.5), 2**-0.5]),  # mean 3, std 8**.5 with n - 1
        ("constant_norm_rescale", [1 / 13**0.5, 5 / 13**0.5]),  # 2**.5 / 26**.5
    ],
)
def test_an_input_norm_is_undone_in_the_reconstruction(norm: str, normed: list[float]) -> None:
    x = torch.tensor([[1.0, 5.0]])
    applied, undo = INPUT_NORMS[norm](x)
    torch.testing.assert_close(applied, torch.tensor([normed]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(undo(applied), x, atol=5e-5, rtol=0)

    sae = two_features(input_norm=norm, b_dec=torch.zeros(2))
    acts = sae.encode(x)
    torch.testing.assert_close(
        sae.decode(acts, x), undo(acts), msg="W_dec is the identity, so acts are x_hat"
    )


def test_decoding_after_a_norm_needs_the_residual() -> None:
    with pytest.raises(ValueError, match="needs the residual"):
        two_features(input_norm="rms").decode(torch.zeros(2))


def test_k_keeps_the_largest_of_each_token_and_no_negative() -> None:
    sae = SparseAutoencoder(torch.eye(3), torch.zeros(3), torch.zeros(3), k=2)
    x = torch.tensor([[3.0, 1.0, 2.0], [-1.0, 5.0, -2.0]])
    assert sae.encode(x).tolist() == [[3.0, 0.0, 2.0], [0.0, 5.0, 0.0]]
    assert (sae.activation, two_features().activation) == ("topk", "jumprelu")


@pytest.mark.parametrize("k", [0, 3])
def test_a_k_beyond_the_features_is_refused(k: int) -> None:
    with pytest.raises(SAEFormatError, match=f"k is {k}; a token keeps between 1 and all 2 features"):
        two_features(k=k)


def test_decode_is_linear_with_bias() -> None:
    assert two_features().decode(torch.tensor([1.0, 2.0])).tolist() == [11.0, 22.0]


def test_decoding_without_a_decoder_says_how_to_load_one() -> None:
    with pytest.raises(SAEFormatError, match="decoder=True"):
        two_features(W_dec=None, b_dec=None).decode(torch.zeros(2))


def test_fvu_is_zero_for_a_perfect_and_one_for_a_mean_reconstruction() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    mean = x.mean(0)
    assert fvu(x, x, mean).tolist() == [0.0, 0.0]
    assert fvu(x, mean.expand(2, 2), mean).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["b_enc", "threshold", "W_dec", "b_dec"])
def test_a_shape_that_does_not_fit_w_enc_is_refused_by_name(name: str) -> None:
    with pytest.raises(SAEFormatError, match=name):
        two_features(**{name: torch.zeros(3)})


def test_an_unknown_input_norm_is_refused() -> None:
    with pytest.raises(SAEFormatError, match="none, rms, layer_norm, constant_norm_rescale"):
        two_features(input_norm="layer")
