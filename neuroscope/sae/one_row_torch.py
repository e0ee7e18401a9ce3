"""Finds one row's features by torch alone, where nothing compiles `one_row.c`.

An 8-bit copy gives every pre-activation within a proven bound (`int8_rows`); what may be active by it is computed in
float32 from the encoder itself (`exact`). Its dozen small operations pay for large encoders only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuroscope.sae.autoencoder import Reading, SparseAutoencoder
from neuroscope.sae.bounds import LARGEST, SLACK, UNIT
from neuroscope.sae.exact import depth, features_of
from neuroscope.sae.int8_rows import Bound, Int8Rows


class OneRowByTorch:
    """As `one_row.OneRow`, but for what features leave unexplained."""

    def __init__(self, sae: SparseAutoencoder) -> None:
        self.sae = sae
        self.copy = Int8Rows(sae.W_enc.T)
        self.candidates = 0
        """Features that were summed for the last row."""
        self._tree = (depth(sae.d_in) + 8) * UNIT  # of a sum in `exact`, and of adding the bias to it
        self._bias = sae.b_enc.abs() * (8 * UNIT)

    def split_off(self, x: Tensor) -> None:
        """From now on compute in float32 the dimensions that are largest in `x` [d_in]."""
        self.copy.split.take(x)

    def read(self, x: Tensor, most: int) -> Reading | None:
        """What is found in a row that has been through the input norm; with `most` 0 the whole encoder is read.

        None where the screen lets more than `most` through, and where x is not finite or sums would overflow.
        """
        x = x.flatten()
        bound = self.copy.product(x, self._tree) if most else self._whole(x)
        passing = None if bound is None else self._passing(bound)
        if passing is None or (most and len(passing) > most):
            return None
        self.candidates = len(passing)
        return Reading(features_of(self.sae, x, passing), None)

    def _whole(self, x: Tensor) -> Bound | None:
        """By the float32 encoder, whose bound is so narrow that few others than active features pass."""
        norm = float(x.double().norm())
        if not norm * self.copy.largest_norm < LARGEST:
            return None
        rounding = SLACK * norm * (self._tree + (self.sae.d_in + 16) * UNIT)
        errors = (self.copy.rest_norms + self.copy.norms).mul_(rounding).add_(self.copy.floor)
        return Bound(x @ self.sae.W_enc, errors)

    def _passing(self, bound: Bound) -> Tensor:
        """Features [n] that may be active by `bound`, ascending."""
        pre = bound.values + self.sae.b_enc
        errors = bound.errors + self._bias
        highest = pre + errors
        passing = (highest > self.sae.threshold) & (highest > 0)
        if self.sae.k is not None and self.sae.k < self.sae.d_sae:
            lowest = pre - errors
            sure = torch.where(lowest > self.sae.threshold, lowest, 0.0).clamp_min(0.0)
            last = sure.topk(self.sae.k).values[-1]
            passing &= highest >= last
        return passing.nonzero()[:, 0]


def keeps_bound(copy: Int8Rows) -> bool:
    """Whether this torch's kernel multiplies as the bound supposes, seen on some features and one made-up row.

    The kernel is no public function of torch: another version may round its input further, or not have it.
    """
    x = torch.linspace(-1.0, 1.0, copy.d_in).sin()
    try:
        bound = copy.product(x, 0.0)
    except (AttributeError, RuntimeError):
        return False
    if bound is None:
        return True
    some = torch.linspace(0, copy.d_sae - 1, 256).long()
    true = copy.rows[some].double() @ x.double()
    return bool(((bound.values[some].double() - true).abs() <= bound.errors[some].double()).all())
