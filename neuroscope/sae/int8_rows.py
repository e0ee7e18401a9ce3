"""An 8-bit copy of an encoder, and how far what it gives can lie from what the encoder itself gives.

    w_f = scale_f * q_f + r_f        q_f whole numbers from -127 to 127, scale_f a bfloat16, r_f the rest
    x   = x_rest + x_split           x_split: the few dimensions that carry most of a real residual's norm
    x_rest = x_bf16 + d              as the kernel reads it

    x @ w_f = scale_f * (q_f @ x_bf16) + x_split @ w_f + [r_f @ x_rest + scale_f * (q_f @ d)]

The bracket is not computed: by Cauchy-Schwarz it is at most |r_f| |x_rest| + scale_f |q_f| |d|, with norms that are
taken in float64 once. To it come the kernel's roundings, which hold for any order of its additions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from neuroscope import large_pages
from neuroscope.sae.bounds import LARGEST, SLACK, SPLIT, UNIT, Split, floors, upwards

MULTIPLE = 64
"""Sides of the copy; torch's kernel reads past the end of others."""
_ROWS = 1024


class Bound(NamedTuple):
    """Approximate pre-activations without their bias, and how far each can be from the exact ones."""

    values: Tensor
    errors: Tensor


class Int8Rows:
    """The copy of `rows` [d_sae, d_in], float32 on the CPU; it takes a byte a weight."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.split = Split(rows)
        self.d_sae, self.d_in = rows.shape
        sides = [-(-side // MULTIPLE) * MULTIPLE for side in rows.shape]
        self.quantised = large_pages.empty(sides, torch.int8).zero_()
        self.scale = torch.zeros(sides[0], dtype=torch.bfloat16)
        rest, whole = torch.zeros(self.d_sae), torch.zeros(self.d_sae)
        for start in range(0, self.d_sae, _ROWS):
            block = rows[start : start + _ROWS].double()
            stop = start + len(block)
            scale = (block.abs().amax(1) / 127).to(torch.bfloat16)
            q = (block / scale.double().clamp_min(1e-300)[:, None]).round_().clamp_(-127, 127)
            self.quantised[start:stop, : self.d_in] = q.to(torch.int8)
            self.scale[start:stop] = scale
            q *= scale.double()[:, None]
            whole[start:stop] = upwards(q.norm(dim=1))
            rest[start:stop] = upwards((block - q).norm(dim=1))
        self.rest_norms, self.norms = rest, whole
        self.largest_norm = float((rest + whole).max())
        self.floor = floors(self.scale[: self.d_sae], self.d_in, rest + whole)

    @property
    def bytes(self) -> int:
        """Memory of the copy, with its norms and the columns that are split off."""
        vectors = 4 * (len(self.floor) + len(self.rest_norms) + len(self.norms)) + 2 * len(self.scale)
        return self.quantised.numel() + vectors + self.split.columns.nbytes

    def product(self, x: Tensor, extra: float) -> Bound | None:
        """x [d_in] @ w_f for each feature, within `errors`; to these comes `extra` * |x| |w_f|.

        None where it would overflow.
        """
        rest, split = x, None
        if len(dimensions := self.split.dimensions):
            rest = x.index_fill(0, dimensions, 0.0)
            split = x[dimensions] @ self.split.columns
        read = rest.to(torch.bfloat16)
        norm, rest_norm, lost_norm, read_norm = (_norm(v) for v in (x, rest, rest - read, read))
        if not (math.isfinite(read_norm) and norm * self.largest_norm < LARGEST):
            return None
        padded = torch.nn.functional.pad(read, (0, self.quantised.shape[1] - self.d_in))
        values = torch._weight_int8pack_mm(padded[None], self.quantised, self.scale)[0, : self.d_sae].float()
        common = (extra + (SPLIT + 8) * UNIT) * norm
        kernel = (self.quantised.shape[1] + 16) * UNIT * read_norm
        errors = self.rest_norms * (SLACK * (rest_norm + common))
        errors.add_(self.norms, alpha=SLACK * (lost_norm + kernel + common))
        errors.add_(values.abs(), alpha=SLACK * 2.0**-8)  # the kernel gives bfloat16
        errors.add_(self.floor)
        return Bound(values if split is None else values.add_(split), errors)


def _norm(vector: Tensor) -> float:
    return float(vector.double().norm())
