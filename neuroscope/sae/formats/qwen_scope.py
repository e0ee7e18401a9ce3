"""Qwen-Scope (Qwen 2026, arXiv 2605.11887): a torch file a layer, `layer{n}.sae.pt`; k is in the repository's name.

pre = x @ W_enc.T + b_enc; of each token the k largest are kept, x_hat = acts @ W_dec.T + b_dec (the model cards).
The cards keep a negative pre that is among the k largest; here it is 0, as in SAELens: no feature fires below 0.
"""

from __future__ import annotations

import re
from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.checks import whole_number
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.torch_file import read_torch

FILE = "layer*.sae.pt"
ENCODER = {"W_enc": 2, "b_enc": 1, "k": 0}
DECODER = {"W_dec": 2, "b_dec": 1}


def load(
    path: Path, *, decoder: bool = True, input_norm: str | None = None, k: int | None = None
) -> SparseAutoencoder:
    """The SAE in `path`, the file or a folder with one. `k` None is the file's, else the `L0_{k}` of its path."""
    file = weights_file(path, FILE)
    arrays = read_torch(file, ENCODER | (DECODER if decoder else {}), optional=frozenset({"k"}))
    if k is None:
        k = whole_number(file, "k", arrays["k"]) if "k" in arrays else _named_k(file)
    W_dec = arrays["W_dec"].T if decoder else None
    weights = Weights(file, arrays["W_enc"].T, arrays["b_enc"], W_dec, arrays.get("b_dec"))
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none", k=k)


def _named_k(file: Path) -> int:
    """50 of .../SAE-Res-Qwen3-8B-Base-W64K-L0_50/layer20.sae.pt. The hub's cache is of links: none is followed."""
    for part in reversed(file.absolute().parts):
        if found := re.search(r"L0_(\d{1,6})(?!\d)", part):
            return int(found[1])
    raise SAEFormatError(
        f"{file} does not say how many features a token keeps, and no folder above it is named as the release's "
        "repository is (...-L0_50). Put it into a folder of that name, or give load_sae(k=...)."
    )
