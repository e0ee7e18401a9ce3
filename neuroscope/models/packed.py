"""A linear layer on weights of 8 or 4 bits, by torch's own kernels where they are right, else dequantised.

The kernels read activations as bfloat16 and so do the scales: with float32 activations torch's loops are plain ones,
20 to 100 times slower. How many rows come decides between a kernel and a dequantised product, and nothing else does:
the same rows give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuroscope.errors import ModelError
from neuroscope.models.rounding import BLOCK, INT4_GROUP, Rounded, dequantised, rounded

WRONG = 0.02
"""A kernel whose product differs by more than this share is not used; rounding to bfloat16 makes some 0.004."""


@dataclass(frozen=True)
class Kernel:
    """One form of packed weights with what multiplies it. Functions of a module, so that layers can be copied."""

    pack: Callable[[Rounded], tuple[Tensor, Tensor]]
    """To packed weights, outputs along their first dimension, and scales."""
    multiply: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Of bfloat16 rows [n, K], packed weights and scales: [n, N]."""
    dequantise: Callable[[Tensor, Tensor, int], Tensor]
    """Weights [N, K] float32, of packed weights, scales and K."""
    most_rows: int
    """With more rows the dequantised product is faster."""
    outputs_along: int = 0
    """Dimension of the scales along which outputs lie."""
    joins_at: int = 1
    """Packed weights can be put one after the other when each has a multiple of this many outputs."""


EVERY = 1 << 62
"""Rows that are never exceeded."""

VECTOR = 32
"""Weights that torch's int8 kernel reads at once, at most: it reads past the end of rows that do not divide."""


def _pack8(weights: Rounded) -> tuple[Tensor, Tensor]:
    if weights.values.shape[1] % VECTOR:
        raise ValueError(f"{weights.values.shape[1]} weights are no whole number of vectors")
    return weights.values, weights.scales[:, 0].contiguous()


def _multiply8(x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    return torch._weight_int8pack_mm(x, packed, scales)


def _dequantise8(packed: Tensor, scales: Tensor, _width: int) -> Tensor:
    return packed.float() * scales.float().unsqueeze(-1)


def _pack4_cpu(weights: Rounded) -> tuple[Tensor, Tensor]:
    above = weights.values.to(torch.int32) + 8
    return torch._convert_weight_to_int4pack_for_cpu(above, 1), _scales4(weights)


def _multiply4_cpu(x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    return torch._weight_int4pack_mm_for_cpu(x, packed, x.shape[1] // scales.shape[0], scales)


def _dequantise4_cpu(packed: Tensor, scales: Tensor, width: int) -> Tensor:
    return _multiply4_cpu(torch.eye(width, dtype=torch.bfloat16), packed, scales).T.float()


def _pack4_gpu(weights: Rounded) -> tuple[Tensor, Tensor]:
    width = weights.values.shape[1]
    above = (weights.values + 8).to(torch.uint8)
    tiles = next(tiles for tiles in (8, 4, 2) if width % (16 * tiles) == 0)
    nibbles = above[:, ::2] << 4 | above[:, 1::2]
    return torch._convert_weight_to_int4pack(nibbles.contiguous(), tiles), _scales4(weights)


def _multiply4_gpu(x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    return torch._weight_int4pack_mm(x, packed, x.shape[1] // scales.shape[0], scales)


def _dequantise4_gpu(packed: Tensor, scales: Tensor, width: int) -> Tensor:
    identity = torch.eye(width, dtype=torch.bfloat16, device=packed.device)
    return _multiply4_gpu(identity, packed, scales).T.float()


def _scales4(weights: Rounded) -> Tensor:
    """[G, N, 2], of a whole number of groups."""
    if weights.values.shape[1] % weights.group:
        raise ValueError(
            f"{weights.values.shape[1]} weights are no whole number of groups of {weights.group}"
        )
    return torch.stack([weights.scales.T, weights.zeros.T], -1).contiguous()


def _pack_plain(weights: Rounded) -> tuple[Tensor, Tensor]:
    return weights.values, torch.stack([weights.scales, weights.zeros], -1)


def _dequantise_plain(packed: Tensor, scales: Tensor, width: int) -> Tensor:
    groups = scales.shape[1]
    group = width if groups == 1 else INT4_GROUP
    return dequantised(packed, scales[..., 0], scales[..., 1], group)


def _multiply_plain(x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    return nn.functional.linear(x, _dequantise_plain(packed, scales, x.shape[1]).to(x.dtype))


KERNELS: dict[tuple[int, bool], Kernel] = {
    (8, True): Kernel(_pack8, _multiply8, _dequantise8, most_rows=64),
    (8, False): Kernel(_pack8, _multiply8, _dequantise8, most_rows=16),
    (4, True): Kernel(_pack4_cpu, _multiply4_cpu, _dequantise4_cpu, EVERY, outputs_along=1, joins_at=64),
    (4, False): Kernel(_pack4_gpu, _multiply4_gpu, _dequantise4_gpu, EVERY, outputs_along=1, joins_at=8),
}
"""Bits and whether on the CPU -> the kernel to try.

int8 on CPUs: with up to 64 rows the kernel is as fast or faster (AVX2 and AVX-512 alike), with 1,024 it takes up to
1.3 times as long as the dequantised product. int4 on CPUs: with 1,024 rows as fast as float32 weights on AVX-512 and
1.4 times as long on AVX2, but dequantising what is packed would cost as much. On GPUs nothing was measured.
"""

PLAIN = Kernel(_pack_plain, _multiply_plain, _dequantise_plain, most_rows=0)
"""For every device, shape and torch."""


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
        kernel, packed = first.kernel, torch.cat([layer.packed for layer in layers])
        scales = torch.cat([layer.scales for layer in layers], kernel.outputs_along)
        bias = None if first.bias is None else torch.cat([layer.bias for layer in layers])
        for layer, rows in zip(
            layers, torch.split(packed, [len(layer.packed) for layer in layers]), strict=True
        ):
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
        rows = x.reshape(-1, self.in_features)
        if rows.shape[0] > self._most_rows:
            out = self._dequantised(rows)
        else:
            out = self._multiply(rows.to(torch.bfloat16).contiguous(), self.packed, self.scales).to(x.dtype)
        if self.bias is not None:
            out += self.bias
        return out.view(*x.shape[:-1], self.out_features)

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
        """Whether the kernel gives the product of these weights with one row; NaN where that is NaN."""
        device = weights.values.device
        x = torch.linspace(-1, 1, self.in_features, device=device).add_(0.01).cos().bfloat16().unsqueeze(0)
        known = PackedLinear(PLAIN, *PLAIN.pack(weights), None, self.in_features)._dequantised(x.float())
        got = self._multiply(x, self.packed, self.scales).float()
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
