"""Gemma Scope 2 (Google DeepMind 2025, for Gemma 3): `params.safetensors` in lower case, with a `config.json`.

Gemma Scope's formula, the residual raw: acts = relu(pre) * (pre > threshold), pre = x @ w_enc + b_enc (the release's
tutorial, class JumpReLUSAE). The same repositories hold transcoders, which read one place and write another: refused.
"""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.checks import check_not_negative
from neuroscope.sae.config import read_config
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.safetensors import names_in, read_safetensors

FILE = "params.safetensors"
CONFIG = "config.json"
ENCODER = {"w_enc": 2, "b_enc": 1, "threshold": 1}
DECODER = {"w_dec": 2, "b_dec": 1}


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path`, the file or its folder. Some repositories lack the config.json; it only names the hook."""
    file = weights_file(path, FILE)
    if file.with_name(CONFIG).exists():
        _check_config(file.with_name(CONFIG))
    if "affine_skip_connection" in names_in(file):
        raise _transcoder(file, "has an affine_skip_connection")
    arrays = read_safetensors(file, ENCODER | (DECODER if decoder else {}))
    check_not_negative(file, "threshold", arrays["threshold"])
    weights = Weights(
        file,
        arrays["w_enc"],
        arrays["b_enc"],
        arrays.get("w_dec"),
        arrays.get("b_dec"),
        arrays["threshold"],
    )
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none")


def _check_config(file: Path) -> None:
    config = read_config(file)
    if config.text("architecture", "jump_relu") != "jump_relu":
        raise config.refusal("architecture", "jump_relu")
    hook_in = config.text("hf_hook_point_in", "")
    if config.text("hf_hook_point_out", hook_in) != hook_in:
        raise _transcoder(file, "writes to another hook point than it reads")
    if config.flag("affine_connection", False):
        raise _transcoder(file, "has an affine connection")


def _transcoder(file: Path, why: str) -> SAEFormatError:
    return SAEFormatError(
        f"{file} belongs to a transcoder: it {why}. Only SAEs are read here; choose one below resid_post/."
    )
