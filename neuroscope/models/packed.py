"""A linear layer on weights of 8 or 4 bits, by torch's own kernels where they are right, else dequantised.

How many rows come decides between a kernel and a dequantised product, and nothing else does: the same rows give the
same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from neuroscope.errors import ModelError
from neuroscope.models.packed_kernels import KERNELS, PLAIN, Kernel
from neuroscope.models.rounding import BLOCK, Rounded, rounded
from neuroscope.models.together import together

WRONG = 0.02
"""A kernel whose product differs by more than this share is not used; rounding to bfloat16 makes some 0.004."""

CHECKED = 7
"""Rows that a kernel is tried on, the first by itself: kernels have other loops for one row than for more."""


def _product_dtype(x: Tensor) -> torch.dtype:
    """x's own, but where a processor has no instructions for 16 bits float32 is four times faster."""
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)  # not in every torch
    if x.device.type != "cpu" or (x.dtype == torch.bfloat16 and native()):
        return x.dtype
    return torch.float32


class PackedLinear(nn.Module):
    """What a linear layer gives, up to rounding; in and out in the dtype of its input."""

    packed: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(
        self, kernel: Kernel, packed: Tensor, scales: Tensor, bias: Tensor | None, in_features: int
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.in_features = in_features
        self.out_features = scales.shape[kernel.outputs_along]
        self.register_buffer("packed", packed)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias)
        self._multiply, self._most_rows = kernel.multiply, kernel.most_rows

    @classmethod
    def pack(cls, weight: Tensor, bias: Tensor | None, bits: int) -> PackedLinear:
        """Of weights [N, K], where they are, by the kernel of their device or PLAIN where that is not right."""
        weights = rounded(weight, bits)
        kernel = KERNELS[bits, weight.device.type == "cpu"]
        try:
            layer = cls(kernel, *kernel.pack(weights), bias, weight.shape[1])
            if layer.is_right(weights):
                return layer
        except (RuntimeError, ValueError, AttributeError, StopIteration):
            pass  # the kernel is not in this torch, or not for this shape or device
        return cls(PLAIN, *PLAIN.pack(weights), bias, weight.shape[1])

    @classmethod
    def of(cls, parts: Sequence[nn.Module]) -> nn.Module:
        """One layer with the outputs of all `parts` side by side, which must have the same inputs.

        The weights of the parts become views of its own, so both can be used and memory is taken once.
        """
        first = parts[0]
        if not isinstance(first, PackedLinear) or not all(first._joins(part) for part in parts[1:]):
            return SideBySide(parts)
        layers: list[Any] = list(parts)
        kernel, (packed, parts_of_it) = first.kernel, together([layer.packed for layer in layers])
        scales = torch.cat([layer.scales for layer in layers], kernel.outputs_along)
        bias = None if first.bias is None else torch.cat([layer.bias for layer in layers])
        for layer, rows in zip(layers, parts_of_it, strict=True):
            layer.packed = rows
        return cls(kernel, packed, scales, bias, first.in_features)

    def _joins(self, other: nn.Module) -> bool:
        return (
            isinstance(other, PackedLinear)
            and other.kernel == self.kernel
            and self.out_features % self.kernel.joins_at == other.out_features % self.kernel.joins_at == 0
            and other.in_features == self.in_features
            and (other.bias is None) == (self.bias is None)
            and other.packed.device == self.packed.device
            and other.scales.numel() * self.out_features == self.scales.numel() * other.out_features
        )

    @property
    def weight(self) -> Tensor:
        """Weights [N, K] float32 that the packed ones stand for, made anew each time."""
        return self.kernel.dequantise(self.packed, self.scales, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., K] to [..., N]. Called some hundred times a token: every attribute of a module is a search."""
        held: Any = self._buffers
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        if rows.shape[0] > self._most_rows:
            out = self._dequantised(rows)
        else:
            out = self._multiply(rows.bfloat16().contiguous(), held["packed"], held["scales"])
            if out.dtype != x.dtype:
                out = out.float() if x.dtype == torch.float32 else out.to(x.dtype)
        if held["bias"] is not None:
            out += held["bias"]
        return out if rows is x else out.view(*x.shape[:-1], self.out_features)

    def _dequantised(self, x: Tensor) -> Tensor:
        """x [n, K] by the dequantised weights, some at a time: they stay in the cache, and no copy is whole."""
        rows = x.to(_product_dtype(x))
        out = rows.new_empty(rows.shape[0], self.out_features)
        step = max(1, BLOCK // self.in_features)
        for start in range(0, self.out_features, step):
            part = slice(start, start + step)
            weight = self.kernel.dequantise(self.packed[part], self.scales[part], self.in_features)
            torch.mm(rows, weight.to(rows.dtype).T, out=out[:, part])
        return out.to(x.dtype)

    def is_right(self, weights: Rounded) -> bool:
        """Whether the kernel gives the product of these weights with one row and several; NaN where that is NaN."""
        device = weights.values.device
        numbers = torch.linspace(0, 100, CHECKED * self.in_features, device=device)
        x = numbers.sin().bfloat16().view(CHECKED, -1)
        known = PackedLinear(PLAIN, *PLAIN.pack(weights), None, self.in_features)._dequantised(x.float())
        got = torch.cat([self._multiply(part, self.packed, self.scales) for part in (x[:1], x[1:])]).float()
        sound = known.isfinite()
        if got.shape != known.shape or not torch.equal(sound, got.isfinite()):
            return False
        error = torch.linalg.vector_norm((got - known)[sound])
        return bool(error <= WRONG * torch.linalg.vector_norm(known[sound]))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedLinear:
        """Packed weights are of one device, and bfloat16 scales of one kernel: neither can change."""
        after = fn(self.scales)
        if (after.device, after.dtype) != (self.scales.device, self.scales.dtype):
            raise ModelError(
                f"Packed weights on {self.scales.device} cannot become {after.dtype} on {after.device}. "
                "Load the model with that device and dtype instead."
            )
        return self

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, kernel={self.kernel}"


class SideBySide(nn.Module):
    """The outputs of several layers of one input, where their weights cannot be joined."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)


def rounds_to(model: Any) -> torch.dtype:
    """What activations are rounded to on their way: bfloat16 where layers have a kernel, else the model's dtype.

    Two right ways to one residual differ by as much as this dtype's rounding makes, grown over the layers.
    """
    packed = any(isinstance(layer, PackedLinear) and layer.kernel != PLAIN for layer in model.modules())
    dtype: torch.dtype = torch.bfloat16 if packed else model.dtype
    return dtype
