"""What the copies of an encoder share: the sizes of roundings, and the dimensions that are kept out of them."""

from __future__ import annotations

import torch
from torch import Tensor

UNIT = 2.0**-24
"""Largest relative error of one float32 rounding."""
SLACK = 1.001
"""Covers that the bounds themselves are computed in float32."""
LARGEST = 1e37
"""Of a row's norm times a feature's: larger sums may overflow, and are not bounded."""
SPLIT = 8
"""Dimensions taken out of the copy's product: half a megabyte of float32 for 16,384 features."""
_SMALLEST = 2.0**-124
"""What products that underflow can be off by, each, with room."""


def floors(scale: Tensor, d_in: int, norms: Tensor) -> Tensor:
    """What underflow can add to the error of each feature; none where a feature reads nothing."""
    return torch.where(norms > 0, (scale.float() * d_in + 1) * _SMALLEST, 0.0)


def upwards(norms: Tensor) -> Tensor:
    """float64 norms as float32 that are not smaller, zero where they are zero."""
    return torch.where(norms > 0, (norms * (1 + 1e-6)).float() + torch.finfo(torch.float32).tiny, 0.0)


class Split:
    """The few dimensions that carry most of a real residual's norm: by the encoder's own `rows` [d_sae, d_in]."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self.dimensions = torch.empty(0, dtype=torch.long)
        """[n], ascending."""
        self.columns = torch.empty(0, len(rows))
        """What the rows have for them, [n, d_sae]."""

    def take(self, x: Tensor) -> None:
        """From now on those that are largest in `x` [d_in]."""
        self.dimensions = x.abs().topk(min(SPLIT, len(x))).indices.sort().values
        self.columns = self._rows[:, self.dimensions].T.contiguous()
