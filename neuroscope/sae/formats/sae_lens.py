"""SAELens (Bloom, Tigges, Duong, Chanin): `cfg.json` and `sae_weights.safetensors`, as SAE.save_model writes them.

sae_in = norm(x) - b_dec * apply_b_dec_to_input, then by `architecture`: standard (ReLU), jumprelu, topk, gated; x_hat =
undo(acts @ W_dec + b_dec) (its saes/). BatchTopK and Matryoshka SAEs are saved for inference as jumprelu. Configs of
versions before 6.0 have hook_point, activation_fn_str and a boolean normalize_activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.checks import Array
from neuroscope.sae.config import Config, read_config
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.safetensors import read_safetensors

FILE = "sae_weights.safetensors"
CONFIG = "cfg.json"
_COMMON = {"W_enc": 2, "b_dec": 1, "scaling_factor": 1}
ENCODERS: dict[str, dict[str, int]] = {
    "standard": {"b_enc": 1},
    "topk": {"b_enc": 1},
    "jumprelu": {"b_enc": 1, "threshold": 1, "log_threshold": 1},
    "gated": {"r_mag": 1, "b_mag": 1, "b_gate": 1},
}
"""architecture -> its own arrays and their dimensions."""
OPTIONAL = frozenset({"threshold", "log_threshold", "scaling_factor"})
NORMS = {"none": "none", "layer_norm": "layer_norm", "constant_norm_rescale": "constant_norm_rescale"}
"""normalize_activations -> our input norm."""


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path`, the file or its folder. `input_norm` replaces what normalize_activations says."""
    file = weights_file(path, FILE)
    config = read_config(file.with_name(CONFIG))
    architecture, k = _architecture(config)
    norm = input_norm or _input_norm(config)
    if config.text("reshape_activations", "none") != "none":
        raise config.refusal("reshape_activations", "none; SAEs on attention heads are not read here")
    rescales = config.flag("rescale_acts_by_decoder_norm", False)
    wanted = _COMMON | ENCODERS[architecture] | ({"W_dec": 2} if decoder or rescales else {})
    arrays = read_safetensors(file, wanted, optional=OPTIONAL)
    weights = _weights(file, architecture, arrays)
    for key, size in zip(("d_in", "d_sae"), weights.W_enc.shape, strict=True):
        if config.whole(key, size) != size:
            raise config.refusal(key, f"{size}, as in {FILE}")
    if rescales:
        weights.rescale_acts_by_decoder_norm()
    if "scaling_factor" in arrays:
        _scale_decoder(weights, arrays["scaling_factor"], config)
    if config.flag("apply_b_dec_to_input", True):
        weights.subtract_b_dec()
    return weights.autoencoder(decoder=decoder, input_norm=norm, k=k)


def _architecture(config: Config) -> tuple[str, int | None]:
    """standard, topk, jumprelu or gated, with topk's k. Raises SAEFormatError for any other."""
    architecture = config.text("architecture", "standard")
    activation = config.text("activation_fn_str", config.text("activation_fn", "relu"))
    if architecture == "standard" and activation == "topk":
        architecture = "topk"  # before 6.0
    elif activation not in ("relu", "topk"):
        raise config.refusal(
            "activation_fn_str" if "activation_fn_str" in config else "activation_fn", "relu or topk"
        )
    if architecture not in ENCODERS:
        raise config.refusal(
            "architecture",
            f"one of {', '.join(ENCODERS)}. Transcoders are no SAEs; a BatchTopK SAE is to be saved with "
            "save_inference_model",
        )
    if architecture != "topk":
        return architecture, None
    return architecture, config.whole("k") if "k" in config else config.section("activation_fn_kwargs").whole(
        "k"
    )


def _input_norm(config: Config) -> str:
    try:
        kind = config.text("normalize_activations", "none")
    except SAEFormatError:
        kind = "expected_average_only_in" if config.flag("normalize_activations") else "none"  # before 6.0
    if kind == "expected_average_only_in":
        raise SAEFormatError(
            f"{config.file}: normalize_activations is expected_average_only_in, and the factor is not in the file: "
            "sqrt(d_in) over the average norm of the residuals it was trained on. Fold it in with SAELens' "
            "fold_activation_norm_scaling_factor and save the SAE again; if it is folded, set sae.input_norm to none."
        )
    if kind not in NORMS:
        raise config.refusal("normalize_activations", f"one of {', '.join(NORMS)}")
    return NORMS[kind]


def _weights(file: Path, architecture: str, arrays: Mapping[str, Array]) -> Weights:
    W_enc, W_dec, b_dec = arrays["W_enc"], arrays.get("W_dec"), arrays["b_dec"]
    if architecture == "gated":
        gate = {name: arrays[name] for name in ENCODERS["gated"]}
        return Weights.gated(file, W_enc, W_dec, b_dec, **gate)
    threshold: Array | float = 0.0
    if architecture == "jumprelu":
        if "threshold" in arrays:
            threshold = arrays["threshold"]
        elif "log_threshold" in arrays:
            threshold = np.exp(arrays["log_threshold"].astype(np.float64))
        else:
            raise SAEFormatError(f"{file} lacks threshold: not a jumprelu SAE. Check {CONFIG} beside it.")
    weights = Weights(file, W_enc, arrays["b_enc"], W_dec, b_dec, threshold)
    weights.clip_threshold()
    return weights


def _scale_decoder(weights: Weights, factor: Array, config: Config) -> None:
    """finetuning_scaling_factor, before 6.0: acts * factor [d_sae] are decoded."""
    if factor.shape != weights.decoder_scale.shape:
        raise SAEFormatError(
            f"{weights.file}: scaling_factor has shape {factor.shape}, one a feature is expected."
        )
    if np.allclose(factor, 1.0):
        return
    if not config.flag("finetuning_scaling_factor", False):
        raise config.refusal("finetuning_scaling_factor", f"true: {FILE} has a scaling_factor that is not 1")
    weights.decoder_scale = weights.decoder_scale * factor
