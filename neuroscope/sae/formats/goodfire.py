"""Goodfire's SAEs for Llama 3 (2025): one torch file (.pth or .pt) of two linear layers.

acts = relu(encoder_linear(x)), x_hat = decoder_linear(acts) (the release's notebook): a JumpReLU at threshold 0.
torch's linear layers hold their matrices transposed.
"""

from __future__ import annotations

from pathlib import Path

from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.torch_file import read_torch

FILE = "*-SAE-l*.pt*"
ENCODER = {"encoder_linear.weight": 2, "encoder_linear.bias": 1}
DECODER = {"decoder_linear.weight": 2, "decoder_linear.bias": 1}


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path`, the file or its folder."""
    file = weights_file(path, FILE)
    arrays = read_torch(file, ENCODER | (DECODER if decoder else {}))
    weights = Weights(
        file,
        arrays["encoder_linear.weight"].T,
        arrays["encoder_linear.bias"],
        arrays["decoder_linear.weight"].T if decoder else None,
        arrays.get("decoder_linear.bias"),
    )
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none")
