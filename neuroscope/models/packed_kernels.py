"""Torch's kernels for packed weights: how each wants them laid out, and what multiplies them.

The kernels read activations and scales as bfloat16: with float32 activations torch's loops are plain ones, 20 to 100
times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neuroscope.models.rounding import INT4_GROUP, Rounded, dequantised


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
