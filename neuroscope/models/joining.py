"""Linear layers of one input as one product: their weights lie one after the other in memory, which is taken once.

A product for one token costs some 20 microseconds before it reads a weight, and threads share a small matrix badly.
The layers stay where they are and what they are; only the memory of their weights is moved, a group at a time. Weights
that are mapped from their file become the process's own; the pages of the file stay the system's, which drops them when
it needs memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from neuroscope.models.kernels import Product
from neuroscope.models.packed import PackedLinear
from neuroscope.models.together import together

Op = Callable[[Tensor], Tensor]


def joined(layers: Sequence[nn.Module], product: Product) -> Op | None:
    """All outputs side by side, by `product` or a packed kernel; None for layers that are not alike."""
    one: Any = layers[0]
    if type(one) is PackedLinear:
        packed = PackedLinear.of(layers)
        return packed if isinstance(packed, PackedLinear) else None
    alike = [_form(layer) for layer in layers]
    if alike[0] is None or any(form != alike[0] for form in alike[1:]):
        return None
    weights: list[Any] = [layer._parameters["weight"] for layer in layers]
    weight, parts = together([each.data for each in weights])
    for each, part in zip(weights, parts, strict=True):
        each.data = part
    biases: list[Any] = [layer._parameters["bias"] for layer in layers]
    bias = None if one.bias is None else torch.cat(biases).detach()
    return lambda x: product(x, weight, bias)


def plain(layer: nn.Module) -> bool:
    """Whether this is torch's own linear layer on weights as they are."""
    weight = layer._parameters.get("weight")
    return type(layer) is nn.Linear and weight is not None and type(weight.data) is Tensor


def _form(layer: nn.Module) -> tuple[Any, ...] | None:
    """What layers must have in common; None where the weights cannot be moved."""
    if not plain(layer):
        return None
    weight: Any = layer._parameters["weight"]
    if not weight.is_contiguous() or weight.is_inference():
        return None
    return layer.in_features, weight.dtype, weight.device, layer.bias is None
