"""Gemma Scope (Lieberum et al. 2024, arXiv 2408.05147): `params.npz` with W_enc, b_enc, threshold, W_dec, b_dec.

The residual goes in raw. Training divided it by one fixed number, but the released weights have that number folded
in (section 3.1), and b_dec is folded into b_enc, so nothing is subtracted either.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.checks import check_not_negative
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.npz import read_npz

FILE = "params.npz"
ENCODER = {"W_enc": 2, "b_enc": 1, "threshold": 1}
DECODER = {"W_dec": 2, "b_dec": 1}


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path` (the NPZ file, or a folder that holds it as params.npz)."""
    file = weights_file(path, FILE)
    arrays = read_npz(file, ENCODER | (DECODER if decoder else {}))
    check_not_negative(file, "threshold", arrays["threshold"])
    weights = Weights(
        file,
        arrays["W_enc"],
        arrays["b_enc"],
        arrays.get("W_dec"),
        arrays.get("b_dec"),
        arrays["threshold"],
    )
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none")


def save(sae: SparseAutoencoder, path: Path) -> None:
    """Writes an SAE in this layout: what `train` produces."""
    names = [*ENCODER, *DECODER]
    with path.open("wb") as stream:
        np.savez(stream, **{name: getattr(sae, name).detach().cpu().numpy() for name in names})
