"""Finds one row's features by reading an eighth of the encoder: the rest is known to be silent.

A copy of few bits gives every pre-activation within a bound, in C but for a chance of 1.4e-23 (`digits`). Features that
cannot pass their threshold by it are done with; the others, some hundreds of 16k, are computed in float32 from the
encoder itself (`exact`), all in the same order of additions wherever they are computed. So what is active, and how
strongly, does not depend on the screen: it is what `exact.features_of` gives for all features.
`SparseAutoencoder.encode` gives the same up to the rounding of its matrix product: values differ in the last bits, and
a feature whose pre-activation is closer to its threshold than that rounding may be on the other side there.

One row on the CPU only. Of many rows every weight is used often once it is read. On a GPU this is not done: there
W_enc of 16k features is read in about the time that it takes to start the screen's dozen kernels.

Where there is a C compiler `one_row` does it, with a copy in 4 bits and 4 more; else torch does (`one_row_torch`), with
one in 8 bits. An encoder that is screened by neither is read whole, by a matrix product.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from neuroscope import large_pages
from neuroscope.errors import ModelError
from neuroscope.sae.autoencoder import NOT_FINITE, Reading, SparseActs, SparseAutoencoder, sparse
from neuroscope.sae.bounds import LARGEST
from neuroscope.sae.exact import features_of
from neuroscope.sae.one_row import WIDEST, OneRow, library
from neuroscope.sae.one_row_torch import OneRowByTorch, keeps_bound

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
        self.one_row: OneRow | OneRowByTorch
        if compiled is None:
            self.one_row = OneRowByTorch(sae)
        else:
            self.one_row = OneRow(sae, compiled, decoder=decoder)
        self._most = int(sae.d_sae * MOST)
        self._spent = 0
        self._fresh = True

    @property
    def candidates(self) -> int:
        """Features that passed the screen for the last row, and were computed in float32."""
        return self.one_row.candidates

    @property
    def is_used(self) -> bool:
        """False once too many rows had too many features near or above their thresholds; results are the same."""
        return self._spent < PATIENCE

    def read(self, normed: Tensor) -> Reading:
        """The features of one row [d_in] or [1, d_in], which has been through the SAE's input norm.

        What they leave unexplained only where C decodes. Raises ModelError when it is not finite.
        """
        reading = self._screened(normed) if self._spent < PATIENCE else None
        if reading is None:
            reading = self.one_row.read(normed, 0)
        if reading is not None:
            return reading
        if not torch.isfinite(normed).all():
            raise ModelError(NOT_FINITE)
        return Reading(sparse(self.sae.encode_normed(normed.reshape(1, -1)))[0], None)  # sums beyond float32

    def _screened(self, row: Tensor) -> Reading | None:
        """By the copy; None when too many features pass, or the row has no bound.

        With too many, other dimensions are split off, for the rows to come and once for this one.
        """
        for attempt in range(2):
            if self._fresh or attempt:
                if not float(row.double().norm()) * self.one_row.copy.largest_norm < LARGEST:
                    return None  # says nothing of the rows to come
                self.one_row.split_off(row.flatten())
                self._fresh = False
            reading = self.one_row.read(row, self._most)
            if reading is not None:
                self._spent = max(self._spent - 1, 0)
                return reading
        self._spent += PRICE
        return None


def screen_of(sae: SparseAutoencoder, *, decoder: bool = True) -> Screen | None:
    """A screen where it pays: on the CPU, for a large encoder, in C or by a torch whose kernel keeps the bound."""
    if sae.device.type != "cpu" or sae.W_enc.numel() < MIN_WEIGHTS_IN_C:
        return None
    compiled = library() if sae.d_in <= WIDEST else None
    if compiled is not None and finds_as_torch(compiled):
        return Screen(sae, compiled, decoder=decoder)
    if sae.W_enc.numel() < MIN_WEIGHTS:
        return None
    by_torch = (screen := Screen(sae)).one_row
    return screen if isinstance(by_torch, OneRowByTorch) and keeps_bound(by_torch.copy) else None


@cache
def finds_as_torch(compiled: ctypes.CDLL) -> bool:
    """Whether what was compiled gives torch's bits, seen on a made-up SAE: compilers can be told to round less."""
    random = torch.Generator().manual_seed(0)
    W_enc, bias = torch.randn(577, 256, generator=random), torch.randn(256, generator=random)
    sae = SparseAutoencoder(W_enc, bias, torch.full((256,), 10.0))
    one_row, everything = Screen(sae, compiled).one_row, torch.arange(256)
    for x in torch.randn(4, 577, generator=random):
        expected = features_of(sae, x, everything)
        for most in (0, 256):  # every feature summed, and those that the screen lets through
            found = one_row.read(x, most)
            if found is None or not _same(found.acts, expected):
                return False
    return True


def _same(one: SparseActs, other: SparseActs) -> bool:
    return (one.indices.tobytes(), one.values.tobytes()) == (other.indices.tobytes(), other.values.tobytes())
