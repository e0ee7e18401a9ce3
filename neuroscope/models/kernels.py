"""Ways to multiply a matrix with one vector, by what was measured of them on processors.

Decoding reads every weight once a token, so the memory's rate is the bound. `F.linear` does not reach it: in float32 it
ends in MKL's product for one vector, which runs on one thread (12 GB/s where oneDNN's gets 26 from the same weights on
two cores), and in bfloat16 in oneDNN's product for many vectors, where PyTorch's own for one is twice as fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

for _cache in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    # oneDNN, and PyTorch around it, keep a program of half a megabyte for each number of rows and weight shape, up to
    # a thousand of them: a sweep's memory would grow with its text. One pass through a model needs some ten. Both read
    # this at their first product.
    os.environ.setdefault(_cache, "32")

SMALL = 1 << 18
"""Weights of fewer bytes stay in the processor's cache, where the call itself costs more than the memory."""

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x [n, d_in], weight [d_out, d_in], bias [d_out] or None -> [n, d_out]."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way; `onednn` is whether PyTorch may leave its products to oneDNN meanwhile."""

    name: str
    product: Product = F.linear
    onednn: bool = True

    @contextmanager
    def active(self) -> Iterator[None]:
        """Around the products: the switch is the whole process's."""
        backend: Any = torch.backends.mkldnn
        before = backend.enabled
        backend.enabled = before and self.onednn
        try:
            yield
        finally:
            backend.enabled = before


def kernels(device: torch.device, dtype: torch.dtype) -> list[Kernel]:
    """The ways there are, best first where nothing is measured."""
    backend: Any = torch.backends.mkldnn
    if device.type == "cpu" and backend.is_available() and backend.enabled:
        if dtype == torch.float32 and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            return [Kernel("oneDNN", _onednn), Kernel("BLAS")]
        if dtype == torch.bfloat16:
            return [Kernel("PyTorch", onednn=False), Kernel("oneDNN")]
    return [Kernel("PyTorch")]


def for_rows(device: torch.device, dtype: torch.dtype) -> Product:
    """How many rows are multiplied: by oneDNN in float32 too, where `F.linear` leaves it to BLAS."""
    backend: Any = torch.backends.mkldnn
    there = backend.is_available() and backend.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return _onednn if device.type == "cpu" and dtype == torch.float32 and there else F.linear


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.nbytes < SMALL:
        return F.linear(x, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found
