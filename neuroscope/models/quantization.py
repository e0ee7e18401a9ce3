"""Which layers of a model are packed when it is loaded, one by one: at no time is there a second copy of the weights.

SAEs are trained on unquantised residuals: `verify` says what it costs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from neuroscope.errors import ModelError
from neuroscope.models.hooks import decoder_layers
from neuroscope.models.packed import PackedLinear
from neuroscope.models.packed_kernels import PLAIN

QUANTIZATIONS = {"none": 0, "int8": 8, "int4": 4}
"""Name -> bits; 0 leaves the weights as they are."""

UNEMBEDDING_BITS = 8
"""Also in int4: at 4 bits the unembedding moves the tokens that the model says, and saves little beside 8."""

log = logging.getLogger(__name__)


def bits_of(name: str) -> int:
    """Raises ModelError for a name that is not known."""
    if name not in QUANTIZATIONS:
        raise ModelError(f"quantization {name!r} is not known. Use {', '.join(QUANTIZATIONS)}.")
    return QUANTIZATIONS[name]


@torch.inference_mode(False)
@torch.no_grad()
def pack_linear_layers(model: Any, bits: int, device: torch.device) -> None:
    """Replaces the linear layers inside the decoder and the unembedding by packed ones on `device`.

    The embedding stays as it is, also where the unembedding was the same weights: it is looked up, not read whole.
    """
    made: dict[int, PackedLinear] = {}
    for owner, name, layer in list(_linear_layers(decoder_layers(model))):
        if id(layer) not in made:
            made[id(layer)] = _packed(layer, bits, device)
        setattr(owner, name, made[id(layer)])
    head = model.get_output_embeddings()
    if type(head) is nn.Linear:
        made[id(head)] = _packed(head, UNEMBEDDING_BITS, device)
        model.set_output_embeddings(made[id(head)])
    slow = [layer for layer in made.values() if layer.kernel == PLAIN]
    if slow:
        log.warning(
            "%d of %d layers have no kernel for packed weights on %s and are dequantised for every pass, "
            "among them one of %d x %d",
            *(len(slow), len(made), device, slow[0].out_features, slow[0].in_features),
        )


def _linear_layers(root: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """(owner, name, layer), a layer as often as it is used. What inherits from a linear layer is left alone."""
    for owner in root.modules():
        for name, layer in owner.named_children():
            if type(layer) is nn.Linear or _is_conv1d(layer):
                yield owner, name, layer


def _is_conv1d(layer: nn.Module) -> bool:
    """GPT-2's linear layer, whose weights lie [K, N]."""
    from transformers.pytorch_utils import Conv1D

    return type(layer) is Conv1D


def _packed(layer: Any, bits: int, device: torch.device) -> PackedLinear:
    weight: Tensor = layer.weight
    if weight.is_meta:
        raise ModelError("A weight was not loaded, only its shape. Fetch the model anew.")
    bias = None if layer.bias is None else layer.bias.detach().to(device)
    rows = weight.detach().to(device)
    return PackedLinear.pack(rows.T.contiguous() if _is_conv1d(layer) else rows, bias, bits)
