"""Llama Scope (He et al. 2024, arXiv 2410.20526): `hyperparams.json` and `checkpoints/final.safetensors`.

With s = sqrt(d_model) / dataset_average_activation_norm.in, pre = (s * x) @ encoder.weight.T + encoder.bias,
x_hat = (acts @ decoder.weight.T + decoder.bias) / s. Activations are pre where the gate is open, in units of the
scaled input, as SAELens and Neuronpedia show them.

The gate is the trap. The release's own loader (OpenMOSS/Language-Model-SAEs, October 2024) first brings the weights to
raw residuals (1 / s) and, with sparsity_include_decoder_norm, to decoder rows of unit norm, then compares with
jump_relu_threshold. So a feature fires where pre * |W_dec row| / s > threshold, or pre > threshold * s / |W_dec row|.
SAELens has s there but not the decoder norms: the two agree where the rows have unit norm.
"""

from __future__ import annotations

import math
from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.config import Config, read_config
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.safetensors import read_safetensors

FILE = "checkpoints/final.safetensors"
CONFIG = "hyperparams.json"
NAMES = {"encoder.weight": 2, "encoder.bias": 1, "decoder.weight": 2, "decoder.bias": 1}


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path`, the folder of the layer or the file of weights in its checkpoints/."""
    file = weights_file(path, FILE)
    config = read_config(file.parent.parent / CONFIG)
    threshold = _threshold(config)
    biased = config.flag("use_decoder_bias", True)
    arrays = read_safetensors(file, NAMES, optional=frozenset() if biased else frozenset({"decoder.bias"}))
    W_enc = arrays["encoder.weight"].T
    d_in, d_sae = config.whole("d_model", W_enc.shape[0]), config.whole("d_sae", W_enc.shape[1])
    if (d_in, d_sae) != W_enc.shape:
        raise config.refusal("d_model", f"{W_enc.shape[0]}, with d_sae {W_enc.shape[1]}, as in the weights")
    weights = Weights(
        file, W_enc, arrays["encoder.bias"], arrays["decoder.weight"].T, arrays.get("decoder.bias")
    )
    scale = _input_scale(config, d_in)
    weights.threshold = weights.threshold + threshold * scale
    if config.flag("sparsity_include_decoder_norm", True):
        weights.gate_by_decoder_norm()
    if config.flag("apply_decoder_bias_to_pre_encoder", False):
        weights.subtract_b_dec()
    weights.scale_input(scale)
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none")


def _threshold(config: Config) -> float:
    """The one threshold, in the units of raw residuals. Raises SAEFormatError for what is no JumpReLU autoencoder."""
    hook_in = config.text("hook_point_in", "")
    if config.text("hook_point_out", hook_in) != hook_in:
        raise SAEFormatError(
            f"{config.file} belongs to a transcoder: it reads {hook_in[:60]} and writes another place. "
            "Only SAEs are read here; choose one whose name has R before its width."
        )
    if config.flag("use_glu_encoder", False):
        raise config.refusal("use_glu_encoder", "false; gated linear encoders are not read here")
    activation, threshold = config.text("act_fn").lower(), config.number("jump_relu_threshold", 0.0)
    if activation == "relu":
        return 0.0
    # The release's loader reads a TopK SAE that has a threshold as a JumpReLU, too.
    if activation not in ("jumprelu", "topk") or (activation == "topk" and threshold == 0.0):
        raise config.refusal("act_fn", "jumprelu, relu, or topk with a jump_relu_threshold")
    if threshold < 0:
        raise config.refusal("jump_relu_threshold", "0 or more")
    return threshold


def _input_scale(config: Config, d_in: int) -> float:
    """s, by which the release multiplies residuals."""
    kind = config.text("norm_activation", "dataset-wise")
    if kind == "inference":
        return 1.0
    if kind != "dataset-wise":
        raise config.refusal("norm_activation", "dataset-wise or inference")
    norms = config.section("dataset_average_activation_norm")
    norm = norms.number("in")
    if norm <= 0:
        raise norms.refusal("in", "more than 0")
    return math.sqrt(d_in) / norm
