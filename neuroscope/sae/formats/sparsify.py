"""sparsify (EleutherAI): `cfg.json` and `sae.safetensors` in a folder per hook point.

acts = the k largest of relu((x - b_dec) @ encoder.weight.T + encoder.bias), x_hat = acts @ W_dec + b_dec (its
sparse_coder.py, fused_encoder.py). Transcoders, skip connections and lookups read or write something else: refused.
SAELens' loader of this format transposes W_dec and, for a normalised decoder, leaves b_dec out: it differs.
"""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.config import Config, read_config
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.safetensors import names_in, read_safetensors

FILE = "sae.safetensors"
CONFIG = "cfg.json"
ENCODER = {"encoder.weight": 2, "encoder.bias": 1, "b_dec": 1}
DECODER = {"W_dec": 2}
REFUSED = {
    "transcode": "it is a transcoder, which writes to another place than it reads",
    "skip_connection": "it adds a skip connection to its output",
    "embed_skip": "it adds a function of the embeddings to its output",
    "gram_lookup": "it subtracts an n-gram table from its input",
    "signed": "it keeps negative activations",
}
"""Flags of cfg.json that change the formula, and what they do."""


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path`, the file or its folder."""
    file = weights_file(path, FILE)
    config = read_config(file.with_name(CONFIG))
    k = _k(config)
    if "W_skip" in names_in(file):
        raise SAEFormatError(f"{file} cannot be read: {REFUSED['skip_connection']}.")
    arrays = read_safetensors(file, ENCODER | (DECODER if decoder else {}))
    W_enc = arrays["encoder.weight"].T
    if config.whole("d_in", W_enc.shape[0]) != W_enc.shape[0]:
        raise config.refusal("d_in", f"{W_enc.shape[0]}, as in {FILE}")
    weights = Weights(file, W_enc, arrays["encoder.bias"], arrays.get("W_dec"), arrays["b_dec"])
    weights.subtract_b_dec()
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none", k=k)


def _k(config: Config) -> int:
    """The number of features a token keeps. Raises SAEFormatError for what is no TopK autoencoder."""
    if config.text("activation", "topk") != "topk":
        raise config.refusal("activation", "topk; groupmax is not read here")
    for flag, meaning in REFUSED.items():
        if config.flag(flag, False):
            raise SAEFormatError(f"{config.file}: {flag} is true: {meaning}. Only SAEs are read here.")
    return config.whole("k")
