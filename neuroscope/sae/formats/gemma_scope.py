"""Gemma Scope (Lieberum et al. 2024, arXiv 2408.05147): `params.npz` with W_enc, b_enc, threshold, W_dec, b_dec.

The residual goes in raw. Training divided it by one fixed number, but the released weights have that number folded
in (section 3.1), and b_dec is folded into b_enc, so nothing is subtracted either.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.npz import read_npz

ENCODER = {"W_enc": 2, "b_enc": 1, "threshold": 1}
DECODER = {"W_dec": 2, "b_dec": 1}


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path` (the NPZ file, or a folder that holds it as params.npz)."""
    file = path / "params.npz" if path.is_dir() else path
    arrays = read_npz(file, ENCODER | (DECODER if decoder else {}))
    negative = np.flatnonzero(arrays["threshold"] < 0)
    if len(negative):
        raise SAEFormatError(
            f"{file}: {len(negative)} thresholds are negative, the first at feature {negative[0]}."
        )
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        return SparseAutoencoder(**tensors, input_norm=input_norm or "none")
    except SAEFormatError as error:
        raise SAEFormatError(f"{file}: {error}") from None


def save(sae: SparseAutoencoder, path: Path) -> None:
    """Writes an SAE in this layout: what `train` produces."""
    names = [*ENCODER, *DECODER]
    with path.open("wb") as stream:
        np.savez(stream, **{name: getattr(sae, name).detach().cpu().numpy() for name in names})
