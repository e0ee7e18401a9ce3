"""Miniature SAE releases with random weights, each in the exact files, names, shapes and number types of the real ones.

Every function writes into `folder` and returns the path that a pairing would name. The residuals they suit are those
of `residuals`. Written by the libraries that the releases were written by: numpy, safetensors, torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor


def residuals(tokens: int, d_in: int, seed: int = 0) -> np.ndarray:
    """[tokens, d_in] float32, off centre and of varying norm, as a residual stream is."""
    rng = np.random.default_rng([seed, 1])
    scale = rng.uniform(0.5, 4.0, (tokens, 1))
    return (scale * (rng.standard_normal((tokens, d_in)) + 0.5)).astype(np.float32)


def weights(d_in: int, d_sae: int, seed: int) -> dict[str, Tensor]:
    """W_enc [d_in, d_sae], W_dec [d_sae, d_in] with rows of various norms, biases, thresholds; float32."""
    rng = np.random.default_rng(seed)
    W_dec = rng.standard_normal((d_sae, d_in))
    W_dec *= rng.uniform(0.5, 2.0, (d_sae, 1)) / np.linalg.norm(W_dec, axis=1, keepdims=True)
    arrays = {
        "W_enc": rng.standard_normal((d_in, d_sae)) / np.sqrt(d_in),
        "W_dec": W_dec,
        "b_enc": rng.normal(0, 0.1, d_sae),
        "b_dec": rng.normal(0, 1, d_in),
        "threshold": rng.uniform(0.2, 1.5, d_sae),
        "r_mag": rng.normal(0, 0.3, d_sae),
        "b_mag": rng.normal(0, 0.5, d_sae),
        "b_gate": rng.normal(0, 0.5, d_sae),
    }
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}


def gemma_scope(folder: Path, d_in: int, d_sae: int, seed: int) -> Path:
    w = weights(d_in, d_sae, seed)
    names = ("W_enc", "W_dec", "b_enc", "b_dec", "threshold")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "params.npz", **{name: w[name].numpy() for name in names})
    return folder / "params.npz"


def gemma_scope_2(folder: Path, d_in: int, d_sae: int, seed: int, *, skip: bool = False) -> Path:
    w = weights(d_in, d_sae, seed)
    tensors = {name.lower(): w[name] for name in ("W_enc", "W_dec", "b_enc", "b_dec", "threshold")}
    config = {
        "architecture": "jump_relu",
        "model_name": "gemma-v3-270m-it",
        "hf_hook_point_in": "model.layers.5.output",
        "width": d_sae,
        "l0": 50,
        "type": "sae",
    }
    if skip:
        tensors["affine_skip_connection"] = torch.zeros(d_in, d_in)
    return _save(folder, config, tensors, "config.json", "params.safetensors")


def sae_lens(
    folder: Path,
    d_in: int,
    d_sae: int,
    seed: int,
    *,
    architecture: str = "jumprelu",
    before_6: bool = False,
    k: int = 8,
    **config: Any,
) -> Path:
    """As SAE.save_model of SAELens 6 writes it, or, with `before_6`, as its versions 2 to 5 did."""
    w = weights(d_in, d_sae, seed)
    own = {"gated": ("r_mag", "b_mag", "b_gate"), "jumprelu": ("b_enc", "threshold")}
    tensors = {name: w[name] for name in ("W_enc", "W_dec", "b_dec", *own.get(architecture, ("b_enc",)))}
    if before_6:
        old = {
            "architecture": "standard" if architecture == "topk" else architecture,
            "d_in": d_in,
            "d_sae": d_sae,
            "dtype": "float32",
            "device": "cpu",
            "model_name": "gpt2-small",
            "hook_point": "blocks.1.hook_resid_pre",
            "hook_point_layer": 1,
            "hook_point_head_index": None,
            "activation_fn_str": "topk" if architecture == "topk" else "relu",
            "activation_fn_kwargs": {"k": k} if architecture == "topk" else {},
            "apply_b_dec_to_input": True,
            "finetuning_scaling_factor": False,
            "normalize_activations": False,
            "context_size": 128,
        }
        return _save(folder, old | config, tensors, "cfg.json", "sae_weights.safetensors")
    new = {
        "d_in": d_in,
        "d_sae": d_sae,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {"sae_lens_version": "6.54.12", "hook_name": "blocks.1.hook_resid_post"},
        "architecture": architecture,
        **({"k": k, "rescale_acts_by_decoder_norm": False} if architecture == "topk" else {}),
    }
    return _save(folder, new | config, tensors, "cfg.json", "sae_weights.safetensors")


def sparsify(folder: Path, d_in: int, d_sae: int, seed: int, *, k: int = 8, **config: Any) -> Path:
    w = weights(d_in, d_sae, seed)
    tensors = {
        "encoder.weight": w["W_enc"].T.contiguous(),
        "encoder.bias": w["b_enc"],
        "W_dec": w["W_dec"],
        "b_dec": w["b_dec"],
    }
    settings = {
        "activation": "topk",
        "expansion_factor": d_sae // d_in,
        "normalize_decoder": True,
        "num_latents": d_sae,
        "k": k,
        "multi_topk": False,
        "skip_connection": False,
        "transcode": False,
        "d_in": d_in,
    }
    return _save(folder, settings | config, tensors, "cfg.json", "sae.safetensors")


def dictionary_learning(
    folder: Path, d_in: int, d_sae: int, seed: int, *, dict_class: str = "BatchTopKSAE", k: int = 8
) -> Path:
    w = weights(d_in, d_sae, seed)
    linear = {"encoder.weight": w["W_enc"].T.contiguous(), "decoder.weight": w["W_dec"].T.contiguous()}
    biased = linear | {"encoder.bias": w["b_enc"]}
    parameters = {name: w[name] for name in ("W_enc", "b_enc", "W_dec", "b_dec")}
    batch = {"k": torch.tensor(k, dtype=torch.int), "threshold": torch.tensor(0.75)}
    state: dict[str, dict[str, Tensor]] = {
        "AutoEncoder": biased | {"bias": w["b_dec"]},
        "AutoEncoderNew": biased | {"decoder.bias": w["b_dec"]},
        "AutoEncoderTopK": biased | {"b_dec": w["b_dec"], **batch},
        "BatchTopKSAE": biased | {"b_dec": w["b_dec"], **batch},
        "MatryoshkaBatchTopKSAE": parameters
        | batch
        | {"group_sizes": torch.tensor([d_sae // 4, d_sae - d_sae // 4])},
        "GatedAutoEncoder": linear
        | {
            "decoder_bias": w["b_dec"],
            "r_mag": w["r_mag"],
            "gate_bias": w["b_gate"],
            "mag_bias": w["b_mag"],
        },
        "JumpReluAutoEncoder": parameters | {"threshold": w["threshold"]},
    }
    config = {
        "trainer": {
            "trainer_class": f"{dict_class}Trainer",
            "dict_class": dict_class,
            "activation_dim": d_in,
            "dict_size": d_sae,
            "k": k,
            "layer": 1,
            "lm_name": "EleutherAI/pythia-160m-deduped",
        },
        "buffer": {"d_submodule": d_in, "ctx_len": 1024},
    }
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state[dict_class], folder / "ae.pt")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def goodfire(folder: Path, d_in: int, d_sae: int, seed: int) -> Path:
    w = weights(d_in, d_sae, seed)
    state = {
        "encoder_linear.weight": w["W_enc"].T.contiguous(),
        "encoder_linear.bias": w["b_enc"],
        "decoder_linear.weight": w["W_dec"].T.contiguous(),
        "decoder_linear.bias": w["b_dec"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(
        {name: tensor.to(torch.bfloat16) for name, tensor in state.items()},
        folder / "Tiny-Instruct-SAE-l19.pth",
    )
    return folder / "Tiny-Instruct-SAE-l19.pth"


def llama_scope(folder: Path, d_in: int, d_sae: int, seed: int, **config: Any) -> Path:
    w = weights(d_in, d_sae, seed)
    tensors = {
        "encoder.weight": w["W_enc"].T.contiguous(),
        "encoder.bias": w["b_enc"],
        "decoder.weight": w["W_dec"].T.contiguous(),
        "decoder.bias": w["b_dec"],
    }
    settings = {
        "hook_point_in": "blocks.1.hook_resid_post",
        "hook_point_out": "blocks.1.hook_resid_post",
        "use_decoder_bias": True,
        "apply_decoder_bias_to_pre_encoder": False,
        "expansion_factor": d_sae // d_in,
        "d_model": d_in,
        "d_sae": d_sae,
        "act_fn": "jumprelu",
        "jump_relu_threshold": 1.203125,
        "norm_activation": "dataset-wise",
        "dataset_average_activation_norm": {"in": 19.375, "out": 19.375},
        "sparsity_include_decoder_norm": True,
        "use_glu_encoder": False,
        "top_k": 50,
    }
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    save_file(
        {name: t.to(torch.bfloat16) for name, t in tensors.items()}, folder / "checkpoints/final.safetensors"
    )
    (folder / "hyperparams.json").write_text(json.dumps(settings | config))
    return folder


def qwen_scope(folder: Path, d_in: int, d_sae: int, seed: int, *, k: int = 8) -> Path:
    w = weights(d_in, d_sae, seed)
    file = folder / f"SAE-Res-Tiny-Base-W1K-L0_{k}" / "layer1.sae.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    names = {"W_enc": w["W_enc"].T.contiguous(), "W_dec": w["W_dec"].T.contiguous()}
    torch.save(names | {"b_enc": w["b_enc"], "b_dec": w["b_dec"]}, file)
    return file


def _save(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], config_name: str, weights_name: str
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / config_name).write_text(json.dumps(config))
    save_file(tensors, folder / weights_name)
    return folder
