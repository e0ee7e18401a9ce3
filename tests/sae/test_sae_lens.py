"""What SAELens 6.54.12 makes of the same miniature releases, recorded by bench/sae_lens_golden.py: ours is the same.

Where it is not, a test says why.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import releases
from fakes.published import CASES

from neuroscope.sae import load_sae

RECORDED = np.load(Path(__file__).with_name("sae_lens.npz"))
NAMES = sorted({name.rpartition("/")[0] for name in RECORDED.files})
D_IN, D_SAE, TOKENS = 8, 24, 6
X = torch.from_numpy(releases.residuals(TOKENS, D_IN))
TOLERANCE = 2e-6
"""Of the largest value; both compute in float32."""
RESCALED = ["dictionary_learning GatedAutoEncoder", "dictionary_learning JumpReluAutoEncoder"]
GATED_BY_NORM = "llama_scope"


def ours(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """acts, x_hat and W_dec."""
    case = CASES[name]
    sae = load_sae(case.write(folder, D_IN, D_SAE, 0), format=case.format, device="cpu")
    assert sae.W_dec is not None
    acts = sae.encode(X)
    return acts.numpy(), sae.decode(acts, X).numpy(), sae.W_dec


def assert_same(found: np.ndarray, recorded: np.ndarray) -> None:
    np.testing.assert_allclose(found, recorded, rtol=0, atol=TOLERANCE * np.abs(recorded).max())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in [*RESCALED, GATED_BY_NORM]])
def test_acts_and_reconstruction_are_saelens(name: str, tmp_path: Path) -> None:
    acts, x_hat, _ = ours(name, tmp_path)
    assert_same(acts, RECORDED[f"{name}/acts"])
    assert_same(x_hat, RECORDED[f"{name}/x_hat"])


@pytest.mark.parametrize("name", RESCALED)
def test_dictionary_learnings_acts_are_rescaled_by_decoder_norms_which_saelens_leaves_out(
    name: str, tmp_path: Path
) -> None:
    acts, x_hat, _ = ours(name, tmp_path)
    norms = releases.weights(D_IN, D_SAE, 0)["W_dec"].norm(dim=1).numpy()
    assert_same(acts, RECORDED[f"{name}/acts"] * norms)
    assert_same(x_hat, RECORDED[f"{name}/x_hat"])


def test_llama_scopes_gate_counts_decoder_norms_which_saelens_leaves_out(tmp_path: Path) -> None:
    acts, _, _ = ours(GATED_BY_NORM, tmp_path)
    recorded = RECORDED[f"{GATED_BY_NORM}/acts"]
    in_both = (acts > 0) & (recorded > 0)
    assert_same(acts[in_both], recorded[in_both])
    norms = releases.weights(D_IN, D_SAE, 0)["W_dec"].to(torch.bfloat16).float().norm(dim=1).numpy()
    only_ours, only_theirs = (acts > 0) & (recorded == 0), (acts == 0) & (recorded > 0)
    assert only_ours.any()
    assert only_theirs.any()
    assert (norms[only_ours.nonzero()[1]] > 1).all()
    assert (norms[only_theirs.nonzero()[1]] < 1).all()


def test_all_that_saelens_reads_was_recorded() -> None:
    assert set(CASES) - set(NAMES) == {"sparsify", "dictionary_learning AutoEncoderNew"}
