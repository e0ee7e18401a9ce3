"""`one_row.c` for one SAE: its encoder in digits, exact sums and the decoder for one row, in C.

The row, less the dimensions that are split off, is multiplied as whole numbers with the digits (`digits`). Sums of
whole numbers are exact in any order, and what float32 and float64 round beside them is below the shares of |x| |w_f|
and of |x| that stand in each bound for the order of exact sums. Everything is read, not copied: the SAE's tensors must
stay where they are.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.native import compiled
from neuroscope.sae.autoencoder import Reading, SparseActs, SparseAutoencoder
from neuroscope.sae.bounds import SPLIT, UNIT
from neuroscope.sae.digits import Digits
from neuroscope.sae.exact import depth

WITHOUT = "Features of single tokens are found by torch, which takes about twice the time"
WIDEST = 1_000_000
"""Dimensions for which one_row.c proves that its whole numbers do not overflow."""
FEATURES, PIECES = 512, 8  # as in one_row.c

_POINTERS = (
    "first",
    "second",
    "dither",
    "row_dither",
    "constants",
    "rows",
    "bias",
    "threshold",
    "decoder",
    "decoder_bias",
)
_WORK = ("whole", "scratch", "found", "lowest", "highest", "counts", "values", "decoded")


class _Fields(ctypes.Structure):
    """`struct reader` of one_row.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("d_in", "d_sae", "padded")),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("split", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("dimensions", "columns")),
        ("k", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("largest_norm", "of_sums", "of_bias")),
        ("team", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in _WORK),
        ("last", ctypes.c_double),
        ("candidates", ctypes.c_int64),
        ("unexplained", ctypes.c_double),
    )


class OneRow:
    """Works on one row [d_in] or [1, d_in] at a time, float32 on the CPU; a second caller waits."""

    def __init__(self, sae: SparseAutoencoder, library: ctypes.CDLL, *, decoder: bool) -> None:
        copy = self.copy = Digits(sae.W_enc.T, library)
        d_sae, d_in, padded = copy.d_sae, copy.d_in, copy.padded
        constants = (copy.step, copy.norms, copy.floor, *copy.by_row_dither.unbind(1))
        # After an input norm, what is left unexplained is measured where the norm is undone.
        decodes = decoder and sae.W_dec is not None and sae.b_dec is not None and sae.input_norm == "none"
        read = {
            "first": copy.first,
            "second": copy.second,
            "dither": copy.dither,
            "row_dither": copy.row_dither,
            "constants": torch.stack(constants, 1).contiguous(),
            "rows": copy.rows,
            "bias": sae.b_enc.contiguous(),
            "threshold": sae.threshold.contiguous(),
            "decoder": sae.W_dec.contiguous() if decodes else None,  # type: ignore[union-attr]
            "decoder_bias": sae.b_dec.contiguous() if decodes else None,  # type: ignore[union-attr]
        }
        self._work: dict[str, NDArray[Any]] = {
            "whole": np.zeros(padded, np.int8),
            "scratch": np.zeros((PIECES, d_in), np.float32),
            "found": np.zeros(d_sae, np.int32),
            "lowest": np.zeros(d_sae, np.float32),
            "highest": np.zeros(d_sae, np.float32),
            "counts": np.zeros(-(-d_sae // FEATURES), np.int32),
            "values": np.zeros(d_sae, np.float32),
            "decoded": np.zeros(d_in, np.float32),
        }
        fields = self._fields = _Fields(d_in=d_in, d_sae=d_sae, padded=padded)
        for name, tensor in read.items():
            setattr(fields, name, None if tensor is None else tensor.data_ptr())
        for name, array in self._work.items():
            setattr(fields, name, array.ctypes.data)
        fields.largest_norm = copy.largest_norm
        fields.of_sums = (depth(d_in) + 8 + SPLIT + 8) * UNIT
        fields.of_bias = 8 * UNIT
        fields.k = sae.k or 0
        fields.team = _team()
        self._kept = read, library  # kept, as C has their addresses
        self._find = library.neuroscope_read
        self._find.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self._find.restype = ctypes.c_int64
        self._decodes = decodes
        self._address = ctypes.addressof(fields)
        self._busy = threading.Lock()

    @property
    def candidates(self) -> int:
        """Features that were summed for the last row."""
        return int(self._fields.candidates)

    def split_off(self, x: Tensor) -> None:
        """From now on compute in float32 the dimensions that are largest in `x` [d_in]."""
        with self._busy:
            split = self.copy.split
            split.take(x)
            self._fields.split = len(split.dimensions)
            self._fields.dimensions, self._fields.columns = (
                split.dimensions.data_ptr(),
                split.columns.data_ptr(),
            )

    def read(self, x: Tensor, most: int) -> Reading | None:
        """What is found in a row that has been through the input norm; with `most` 0 every feature is summed.

        None where the screen lets more than `most` through, and where x is not finite or sums would overflow.
        Raises ModelError for a row that is not the SAE's.
        """
        fields, work = self._fields, self._work
        row = x.contiguous()  # a name, so that it is there until C has read it
        if row.numel() != self.copy.d_in or row.dtype != torch.float32 or not row.is_cpu:
            raise ModelError(
                f"A residual of {row.numel()} numbers ({row.dtype}, {row.device}) came to an SAE that reads "
                f"{self.copy.d_in} of float32 on the CPU."
            )
        with self._busy:
            fields.threads = torch.get_num_threads()
            count = self._find(self._address, row.data_ptr(), most)
            if count < 0:
                return None
            acts = SparseActs(work["found"][:count].copy(), work["values"][:count].copy())
            return Reading(acts, fields.unexplained if self._decodes else None)


def library() -> ctypes.CDLL | None:
    """The compiled file; None without a compiler, which is said once."""
    return compiled("neuroscope.sae", "one_row.c", WITHOUT)


def _team() -> int | None:
    """OpenMP's function that has all threads run one; None where torch brings no OpenMP that has it."""
    try:
        function = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
