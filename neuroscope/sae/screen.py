"""Finds one row's features by reading a quarter of the encoder: the rest is known to be silent.

An 8-bit copy gives every pre-activation within a proven bound (`int8_rows`). Features that cannot pass their threshold
by it are done with; the others, some hundreds of 16k, are computed in float32 from the encoder itself (`exact`), all
in the same order of additions wherever they are computed. So what is active, and how strongly, does not depend on the
screen: it is what `exact.features_of` gives for all features. `SparseAutoencoder.encode` gives the same up to the
rounding of its matrix product: values differ in the last bits, and a feature whose pre-activation is closer to its
threshold than that rounding may be on the other side there.

One row on the CPU only. Of many rows every weight is used often once it is read. On a GPU this is not done: there
W_enc of 16k features is read in about the time that it takes to start the screen's dozen kernels.

Where there is a C compiler, the same is done by `one_row` in one pass; else by torch, whose dozen small operations pay
for large encoders only. An encoder that is screened by neither is read whole, by a matrix product.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae import large_pages
from neuroscope.sae.autoencoder import NOT_FINITE, Reading, SparseAutoencoder, sparse
from neuroscope.sae.exact import depth, features_of
from neuroscope.sae.int8_rows import SLACK, UNIT, Bound, Int8Rows
from neuroscope.sae.one_row import WIDEST, OneRow, library

MIN_WEIGHTS = 16_000_000
"""Weights of an encoder from which the screen pays: 64 MB in float32, twice a processor's cache."""
MIN_WEIGHTS_IN_C = 1_000_000
"""The same where it is compiled: as many bytes less to read, and a few microseconds around them."""
MOST = 1 / 16
"""Share of the features that may pass the screen; with more, reading the whole encoder is not slower."""
PRICE = 4
"""Rows that fit, for one that did not: it was screened twice and read whole all the same."""
PATIENCE = 32
"""What rows that did not fit may have cost, less those that did, before the screen is left out for good."""


class Screen:
    """The screen of one SAE. It lays the SAE's W_enc feature by feature in memory; no value changes."""

    def __init__(
        self, sae: SparseAutoencoder, compiled: ctypes.CDLL | None = None, *, decoder: bool = False
    ) -> None:
        if not sae.W_enc.T.is_contiguous():
            sae.W_enc = large_pages.empty((sae.d_sae, sae.d_in), sae.W_enc.dtype).copy_(sae.W_enc.T).T
        self.sae = sae
        self.copy = Int8Rows(sae.W_enc.T)
        self._summed = 0
        self.one_row = None if compiled is None else OneRow(sae, self.copy, compiled, decoder=decoder)
        """The same in C; None where torch does it."""
        self._spent = 0
        self._fresh = True
        self._tree = (depth(sae.d_in) + 8) * UNIT  # of a sum in `exact`, and of adding the bias to it
        self._bias = sae.b_enc.abs() * (8 * UNIT)

    @property
    def candidates(self) -> int:
        """Features that passed the screen for the last row, and were computed in float32."""
        return self._summed if self.one_row is None else self.one_row.candidates

    @property
    def is_used(self) -> bool:
        """False once too many rows had too many features near or above their thresholds; results are the same."""
        return self._spent < PATIENCE

    def read(self, normed: Tensor) -> Reading:
        """The features of one row [d_in] or [1, d_in], which has been through the SAE's input norm.

        What they leave unexplained only where C decodes. Raises ModelError when it is not finite.
        """
        reading = self._screened(normed) if self.is_used else None
        if reading is None:
            reading = self._whole(normed)
        if reading is not None:
            return reading
        if not torch.isfinite(normed).all():
            raise ModelError(NOT_FINITE)
        return Reading(sparse(self.sae.encode_normed(normed.reshape(1, -1)))[0], None)  # sums beyond float32

    def _screened(self, normed: Tensor) -> Reading | None:
        """By the 8-bit copy; None when too many features pass.

        Then other dimensions are split off, for the rows to come and once for this one.
        """
        most = int(self.sae.d_sae * MOST)
        for attempt in range(2):
            if self._fresh or attempt:
                self.copy.split_off(normed.flatten())
                self._fresh = False
            reading = self._by_copy(normed, most)
            if reading is not None:
                self._spent = max(self._spent - 1, 0)
                return reading
        self._spent += PRICE
        return None

    def _by_copy(self, normed: Tensor, most: int) -> Reading | None:
        if self.one_row is not None:
            return self.one_row.read(normed, most)
        normed = normed.flatten()
        bound = self.copy.product(normed, self._tree)
        passing = None if bound is None else self._passing(bound)
        return None if passing is None or len(passing) > most else self._among(normed, passing)

    def _whole(self, normed: Tensor) -> Reading | None:
        """By the float32 encoder, whose bound is so narrow that few others than active features pass."""
        if self.one_row is not None:
            return self.one_row.read(normed, 0)
        normed = normed.flatten()
        norm = float(normed.double().norm())
        if not norm * self.copy.largest_norm < 1e37:
            return None
        rounding = SLACK * norm * (self._tree + (self.sae.d_in + 16) * UNIT)
        errors = (self.copy.rest_norms + self.copy.norms).mul_(rounding).add_(self.copy.floor)
        return self._among(normed, self._passing(Bound(normed @ self.sae.W_enc, errors)))

    def _among(self, normed: Tensor, candidates: Tensor) -> Reading:
        self._summed = len(candidates)
        return Reading(features_of(self.sae, normed, candidates), None)

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


def screen_of(sae: SparseAutoencoder, *, decoder: bool = True) -> Screen | None:
    """A screen where it pays: on the CPU, for a large encoder, in C or by a torch whose kernel keeps the bound."""
    if sae.device.type != "cpu" or sae.W_enc.numel() < MIN_WEIGHTS_IN_C:
        return None
    compiled = library() if sae.d_in <= WIDEST else None
    if compiled is not None and finds_as_torch(compiled):
        return Screen(sae, compiled, decoder=decoder)
    if sae.W_enc.numel() < MIN_WEIGHTS:
        return None
    screen = Screen(sae)
    return screen if keeps_bound(screen.copy) else None


@cache
def finds_as_torch(compiled: ctypes.CDLL) -> bool:
    """Whether what was compiled gives torch's bits, seen on a made-up SAE: compilers can be told to round less."""
    random = torch.Generator().manual_seed(0)
    W_enc, bias = torch.randn(577, 256, generator=random), torch.randn(256, generator=random)
    sae = SparseAutoencoder(W_enc, bias, torch.full((256,), 10.0))
    screen, everything = Screen(sae, compiled), torch.arange(256)
    for x in torch.randn(4, 577, generator=random):
        found, expected = screen.read(x).acts, features_of(sae, x, everything)
        if (found.indices.tobytes(), found.values.tobytes()) != (
            expected.indices.tobytes(),
            expected.values.tobytes(),
        ):
            return False
    return True


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
