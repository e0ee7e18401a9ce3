"""What each release's own published code computes, step by step in float64 NumPy: nothing folded, nothing shared.

The slow obvious oracle for `neuroscope/sae/formats`: it reads the files by numpy, safetensors and torch themselves and
knows none of Neuroscope's readers. Every function is (path, x [tokens, d_in]) -> (acts [tokens, d_sae], x_hat).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from fakes import releases

Array = NDArray[np.float64]
Result = tuple[Array, Array]


class Case(NamedTuple):
    """One variant of one format: how a fake is written, and the oracle that reads it."""

    format: str
    write: Callable[[Path, int, int, int], Path]
    published: Callable[[Path, Array], Result]


def gemma_scope(path: Path, x: Array) -> Result:
    """The tutorial's JumpReLUSAE."""
    p = {name: array.astype(np.float64) for name, array in np.load(path).items()}
    pre = x @ p["W_enc"] + p["b_enc"]
    acts = (pre > p["threshold"]) * relu(pre)
    return acts, acts @ p["W_dec"] + p["b_dec"]


def gemma_scope_2(path: Path, x: Array) -> Result:
    """The tutorial's JumpReLUSAE."""
    p = tensors(path / "params.safetensors")
    pre = x @ p["w_enc"] + p["b_enc"]
    acts = (pre > p["threshold"]) * relu(pre)
    return acts, acts @ p["w_dec"] + p["b_dec"]


def sae_lens(path: Path, x: Array) -> Result:
    """process_sae_in, encode and decode of SAELens 6's saes/, by architecture."""
    config = json.loads((path / "cfg.json").read_text())
    p = tensors(path / "sae_weights.safetensors")
    architecture, k = config["architecture"], config.get("k")
    if config.get("activation_fn_str") == "topk":
        architecture, k = "topk", config["activation_fn_kwargs"]["k"]
    x_in, mean, scale = x, np.zeros(1), np.ones(1)
    if config["normalize_activations"] == "layer_norm":
        mean = x.mean(-1, keepdims=True)
        scale = 1 / (x - mean).std(-1, ddof=1, keepdims=True)
        x_in = (x - mean) / ((x - mean).std(-1, ddof=1, keepdims=True) + 1e-5)
    elif config["normalize_activations"] == "constant_norm_rescale":
        scale = x.shape[1] ** 0.5 / np.linalg.norm(x, axis=-1, keepdims=True)
        x_in = x * scale
    sae_in = x_in - p["b_dec"] * config["apply_b_dec_to_input"]
    decoded_by = p["W_dec"]
    if architecture == "gated":
        gate = sae_in @ p["W_enc"] + p["b_gate"] > 0
        acts = gate * relu(sae_in @ (p["W_enc"] * np.exp(p["r_mag"])) + p["b_mag"])
    else:
        pre = sae_in @ p["W_enc"] + p["b_enc"]
        if architecture == "jumprelu":
            acts = relu(pre) * (pre > p["threshold"])
        elif architecture == "topk":
            norms = np.linalg.norm(p["W_dec"], axis=1)
            if config.get("rescale_acts_by_decoder_norm"):
                pre, decoded_by = pre * norms, p["W_dec"] / norms[:, None]
            acts = top(pre, k)
        else:
            acts = relu(pre)
    return acts, (acts @ decoded_by + p["b_dec"]) / scale + mean


def sparsify(path: Path, x: Array) -> Result:
    """SparseCoder.encode with fused_encoder, and decode."""
    p = tensors(path / "sae.safetensors")
    k = json.loads((path / "cfg.json").read_text())["k"]
    acts = top(relu((x - p["b_dec"]) @ p["encoder.weight"].T + p["encoder.bias"]), k)
    return acts, acts @ p["W_dec"] + p["b_dec"]


def dictionary_learning(path: Path, x: Array) -> Result:
    """The classes of dictionary.py and trainers/, by dict_class."""
    p = torch_state(path / "ae.pt")
    dict_class = json.loads((path / "config.json").read_text())["trainer"]["dict_class"]
    if dict_class == "JumpReluAutoEncoder":
        norms = np.linalg.norm(p["W_dec"], axis=1)
        pre = x @ p["W_enc"] + p["b_enc"]
        acts = relu(pre * (pre > p["threshold"])) * norms
        return acts, (acts / norms) @ p["W_dec"] + p["b_dec"]
    if dict_class == "MatryoshkaBatchTopKSAE":
        post = relu((x - p["b_dec"]) @ p["W_enc"] + p["b_enc"])
        acts = post * (post > p["threshold"])
        return acts, acts @ p["W_dec"] + p["b_dec"]
    if dict_class == "GatedAutoEncoder":
        norms = np.linalg.norm(p["decoder.weight"], axis=0)
        encoded = (x - p["decoder_bias"]) @ p["encoder.weight"].T
        magnitude = relu(np.exp(p["r_mag"]) * encoded + p["mag_bias"])
        acts = (encoded + p["gate_bias"] > 0) * magnitude * norms
        return acts, (acts / norms) @ p["decoder.weight"].T + p["decoder_bias"]
    b_dec = p["bias"] if dict_class == "AutoEncoder" else p.get("b_dec", p.get("decoder.bias"))
    subtracted = 0.0 if dict_class == "AutoEncoderNew" else b_dec
    acts = relu((x - subtracted) @ p["encoder.weight"].T + p["encoder.bias"])
    if dict_class == "AutoEncoderTopK":
        acts = top(acts, int(p["k"]))
    elif dict_class == "BatchTopKSAE":
        acts = acts * (acts > p["threshold"])
    return acts, acts @ p["decoder.weight"].T + b_dec


def goodfire(path: Path, x: Array) -> Result:
    """The release's notebook: two linear layers with a ReLU between."""
    p = torch_state(path)
    acts = relu(x @ p["encoder_linear.weight"].T + p["encoder_linear.bias"])
    return acts, acts @ p["decoder_linear.weight"].T + p["decoder_linear.bias"]


def llama_scope(path: Path, x: Array) -> Result:
    """SparseAutoEncoder.from_config of Language-Model-SAEs, October 2024, and its encode and decode.

    Its acts are in raw residuals' units and for decoder rows of unit norm; given in those of the scaled input.
    """
    config = json.loads((path / "hyperparams.json").read_text())
    p = tensors(path / "checkpoints/final.safetensors")
    scale = config["d_model"] ** 0.5 / config["dataset_average_activation_norm"]["in"]
    p["encoder.bias"], p["decoder.bias"] = p["encoder.bias"] / scale, p["decoder.bias"] / scale
    norms = np.linalg.norm(p["decoder.weight"], axis=0)
    if config["sparsity_include_decoder_norm"]:
        p["decoder.weight"] = p["decoder.weight"] / norms
        p["encoder.weight"] = p["encoder.weight"] * norms[:, None]
        p["encoder.bias"] = p["encoder.bias"] * norms
    pre = x @ p["encoder.weight"].T + p["encoder.bias"]
    acts = np.where(pre > config["jump_relu_threshold"], pre, 0.0)
    x_hat = acts @ p["decoder.weight"].T + p["decoder.bias"]
    return acts * scale / (norms if config["sparsity_include_decoder_norm"] else 1.0), x_hat


def qwen_scope(path: Path, x: Array) -> Result:
    """get_feature_acts of the model cards; a negative value among the k largest is left out."""
    p = torch_state(path)
    acts = top(x @ p["W_enc"].T + p["b_enc"], int(path.parent.name.rpartition("_")[2]))
    return acts, acts @ p["W_dec"].T + p["b_dec"]


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def top(pre: Array, k: int) -> Array:
    """The k largest of each row where they are positive, 0 elsewhere."""
    kept = np.zeros_like(pre)
    for row, values in enumerate(pre):
        for feature in sorted(range(len(values)), key=lambda feature: -values[feature])[:k]:
            kept[row, feature] = max(values[feature], 0.0)
    return kept


def tensors(file: Path) -> dict[str, Array]:
    return {name: tensor.double().numpy() for name, tensor in load_file(file).items()}


def torch_state(file: Path) -> dict[str, Array]:
    return {name: tensor.double().numpy() for name, tensor in torch.load(file, weights_only=True).items()}


def _variant(write: Callable[..., Path], **options: Any) -> Callable[[Path, int, int, int], Path]:
    return lambda folder, d_in, d_sae, seed: write(folder, d_in, d_sae, seed, **options)


def _cases() -> dict[str, Case]:
    cases = {
        "gemma_scope": Case("gemma_scope", releases.gemma_scope, gemma_scope),
        "gemma_scope_2": Case("gemma_scope_2", releases.gemma_scope_2, gemma_scope_2),
        "sparsify": Case("sparsify", releases.sparsify, sparsify),
        "goodfire": Case("goodfire", releases.goodfire, goodfire),
        "llama_scope": Case("llama_scope", releases.llama_scope, llama_scope),
        "llama_scope plain gate": Case(
            "llama_scope", _variant(releases.llama_scope, sparsity_include_decoder_norm=False), llama_scope
        ),
        "qwen_scope": Case("qwen_scope", releases.qwen_scope, qwen_scope),
    }
    for architecture in ("standard", "topk", "jumprelu", "gated"):
        for name, options in {
            "": {},
            " layer_norm": {"normalize_activations": "layer_norm"},
            " constant_norm_rescale": {"normalize_activations": "constant_norm_rescale"},
            " b_dec not applied": {"apply_b_dec_to_input": False},
            " before 6.0": {"before_6": True},
        }.items():
            cases[f"sae_lens {architecture}{name}"] = Case(
                "sae_lens", _variant(releases.sae_lens, architecture=architecture, **options), sae_lens
            )
    rescaled = _variant(releases.sae_lens, architecture="topk", rescale_acts_by_decoder_norm=True)
    cases["sae_lens topk rescaled"] = Case("sae_lens", rescaled, sae_lens)
    for dict_class in (
        "AutoEncoder",
        "AutoEncoderNew",
        "AutoEncoderTopK",
        "BatchTopKSAE",
        "MatryoshkaBatchTopKSAE",
        "GatedAutoEncoder",
        "JumpReluAutoEncoder",
    ):
        cases[f"dictionary_learning {dict_class}"] = Case(
            "dictionary_learning",
            _variant(releases.dictionary_learning, dict_class=dict_class),
            dictionary_learning,
        )
    return cases


CASES = _cases()
