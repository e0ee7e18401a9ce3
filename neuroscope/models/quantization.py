"""Weights in 8 or 4 bits, by torchao. SAEs are trained on unquantised residuals: `verify` says what it costs."""

from __future__ import annotations

import logging
from typing import Any

import torch

from neuroscope.errors import ModelError

QUANTIZATIONS = ("none", "int8", "int4")
INT4_GROUP = 32
"""Weights that share one scale in int4; divides the widths of all known models."""


def torchao_config(name: str) -> Any:
    """transformers' `quantization_config` for int8 (a scale per row) or int4 (a scale per group); None for none.

    Only linear layers inside the decoder are quantised: embeddings and unembedding stay as they are.
    """
    if name == "none":
        return None
    if name not in QUANTIZATIONS:
        raise ModelError(f"quantization {name!r} is not known. Use {', '.join(QUANTIZATIONS)}.")
    try:
        from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig
        from torchao.quantization.granularity import PerGroup
    except ImportError as error:
        raise ModelError(
            f"quantization {name} needs the package torchao ({error}). Install it: pip install torchao"
        ) from error
    from transformers import TorchAoConfig

    if name == "int8":
        return TorchAoConfig(Int8WeightOnlyConfig())
    # torchao's Int4WeightOnlyConfig needs kernels of one GPU maker; this one runs everywhere.
    int4 = getattr(torch, "int4")  # noqa: B009 - torch's stubs lack it
    return TorchAoConfig(IntxWeightOnlyConfig(weight_dtype=int4, granularity=PerGroup(INT4_GROUP)))


def quiet_torchao() -> None:
    """Where torchao is installed, transformers imports it for every model, and it tells of kernels it cannot load."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
