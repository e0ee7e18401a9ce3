"""A copy of an encoder in two digits of 4 bits, and how far what the first gives can lie from what the encoder gives.

    w / step + 7.5 + dither = first + second / 16 + rest        digits of 0 to 15, rest from 0 to 1/16

for each weight w, with a step for each feature (its largest weight is 7.5 of them) and a dither for each dimension,
drawn evenly from 0 to 1 once. The first digits are read of every feature, the second ones of those that the first
leave open, some 14 in 100. To a weight the first digit gives

    w = step * (first - 7 - dither) + e        e from -step/2 to step/2

With a dither, e is evenly distributed whatever w is, and independent of the e of other dimensions (subtractive dither:
Schuchman 1964). So for a row x that does not depend on the dither

    P(|e @ x| > t step |x|)  <=  2 exp(-6 t^2)        (Chernoff, with sinh(y) / y <= exp(y^2 / 6) for each dimension)

With t = 3 that is 7e-24; Cauchy-Schwarz, which knows nothing of chance, would give sqrt(d_in / 12), some 13 for 2,048
dimensions, and nearly every feature would stay open. What both digits leave is as even, and a sixteenth of it.

The row is multiplied as whole numbers of 8 bits, with a dither of its own, drawn from -1/2 to 1/2:

    x = pace * (whole - row_dither) + d        d from -pace/2 to pace/2, `pace` a 126th part of the largest number

So d is evenly distributed too, and independent of the weights' dither, and by the same bound what it has of a feature's
sum is t pace |w| at most, w what the digits give; for normally distributed weights and rows that is a fifteenth of what
the first digits leave. A feature's digits by the row dither are summed once. With both, a feature is missed on a token
with a chance of 1.4e-23: in a billion tokens of a million features, of 1 in 10^7.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from neuroscope import large_pages
from neuroscope.sae.bounds import Split, floors, upwards

DITHERED = 3.0
"""t, in steps of the first digit times |x|."""
MULTIPLE = 64
"""Dimensions are filled up to it: whole vectors of digits, two to a byte."""
_SEED = 0x6E657572


class Digits:
    """The copy of `rows` [d_sae, d_in], float32 on the CPU, made by `one_row.c`.

    It takes a byte a weight, half of it seldom read.
    """

    def __init__(self, rows: Tensor, library: ctypes.CDLL) -> None:
        self.rows = rows
        self.split = Split(rows)
        self.d_sae, self.d_in = rows.shape
        self.padded = -(-self.d_in // MULTIPLE) * MULTIPLE
        """Dimensions with those that are filled up: the first half of them have the low digits of the bytes."""
        random = torch.Generator().manual_seed(_SEED)
        self.dither = torch.rand(self.padded, dtype=torch.float64, generator=random)
        self.row_dither = torch.rand(self.padded, dtype=torch.float64, generator=random) - 0.5
        self.first, self.second = (
            large_pages.empty((self.d_sae, self.padded // 2), torch.uint8) for _ in range(2)
        )
        self.step = torch.empty(self.d_sae)
        """NaN for a feature with a weight that is no number: nothing is known of what it gives."""
        norms = torch.empty(self.d_sae, dtype=torch.float64)
        make = library.neuroscope_digits
        make.restype = None
        make.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 8
        by_row_dither = torch.empty(self.d_sae, 2, dtype=torch.float64)
        tensors = (
            rows,
            self.dither,
            self.row_dither,
            self.first,
            self.second,
            self.step,
            norms,
            by_row_dither,
        )
        make(self.d_in, self.d_sae, self.padded, *(tensor.data_ptr() for tensor in tensors))
        self.norms = upwards(norms)
        """Of each feature at least its own, and those of what its digits stand for."""
        self.largest_norm = float(self.norms.max())
        self.floor = floors(self.step, self.d_in, self.norms)
        self.by_row_dither = by_row_dither.float()
        """Each feature's first digits, and both, by the row's dither [d_sae, 2]."""

    @property
    def bytes(self) -> int:
        """Memory of the copy, with its norms and the columns that are split off."""
        dithers = (self.dither, self.row_dither, self.by_row_dither)
        vectors = (self.step, self.norms, self.floor, *dithers, self.split.columns)
        return self.first.nbytes + self.second.nbytes + sum(vector.nbytes for vector in vectors)
