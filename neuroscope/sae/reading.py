"""From residuals to features, row by row: what the SAE finds, and how much it leaves unexplained."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae.autoencoder import NOT_FINITE, Reading, SparseActs, SparseAutoencoder, fvu, sparse
from neuroscope.sae.norms import INPUT_NORMS
from neuroscope.sae.one_row import OneRow
from neuroscope.sae.one_transfer import MOST, read_one
from neuroscope.sae.screen import screen_of


@dataclass(slots=True)
class Clock:
    """How often residuals were read, and the seconds it took in all."""

    count: int = 0
    seconds: float = 0.0


class FeatureReader:
    """Reads residuals with one SAE. `decoder=False` leaves the fraction of variance unexplained out."""

    def __init__(self, sae: SparseAutoencoder, *, decoder: bool = True) -> None:
        self.sae = sae
        self.screen = screen_of(sae, decoder=decoder)
        """For single rows of a large SAE; None where the whole encoder is as fast."""
        self.decoder = decoder and sae.W_dec is not None and sae.b_dec is not None
        in_c = (
            self.screen is not None and isinstance(self.screen.one_row, OneRow) and sae.input_norm == "none"
        )
        self._in_c = self.screen if in_c else None
        """What reads a row without anything around it; on the way there each operation of torch would take 20 us."""
        self._least = sae.threshold.clamp_min(0).numpy() if sae.device.type == "cpu" else None
        """Pre-activations [d_sae] of silent features at most; None where rows are not read one by one."""
        self._at_once = sae.device.type == "cuda"
        """Whether a single row's features come in one transfer. Others than CUDA have not all of its operations."""
        self._most = max(MOST, sae.k or 0)
        self.clock = Clock()

    def read(self, residual: Tensor) -> list[Reading]:
        """One Reading for each row of `residual` [n, d_in].

        Raises ModelError when a residual is not finite, before it can become a feature.
        """
        started = time.perf_counter()
        is_one = residual.shape[0] == 1 and residual.dtype == torch.float32 and residual.is_cpu
        quick = self._in_c if is_one else None
        readings = self._read(residual) if quick is None else [quick.read(residual)]
        self.clock.seconds += time.perf_counter() - started
        self.clock.count += 1
        return readings

    @torch.inference_mode()
    def _read(self, residual: Tensor) -> list[Reading]:
        if residual.device != self.sae.device:
            residual = residual.to(self.sae.device)
        if self._at_once and len(residual) == 1:
            reading = read_one(self.sae, residual, self._most, decoder=self.decoder)
            if reading is not None:
                return [reading]
            self._most *= 2  # as others to come may need
        elif self._least is not None and len(residual) == 1:
            return [self._read_one(residual if residual.dtype == torch.float32 else residual.float())]
        if not torch.isfinite(residual).all():
            raise ModelError(NOT_FINITE)
        x = residual.float()
        _, undo = INPUT_NORMS[self.sae.input_norm](x)
        rows = sparse(self.sae.encode(residual))
        if not self.decoder:
            return [Reading(acts, None) for acts in rows]
        x_hat = undo(torch.stack([self._decode(acts) for acts in rows]))
        return [Reading(*row) for row in zip(rows, fvu(x, x_hat).tolist(), strict=True)]

    def _decode(self, acts: SparseActs) -> Tensor:
        """`sae.decode` of one token, its norm not undone, reading only the active rows of W_dec: of 16k, some 70."""
        assert self.sae.W_dec is not None
        assert self.sae.b_dec is not None
        indices = torch.from_numpy(acts.indices).to(self.sae.device)
        values = torch.from_numpy(acts.values).to(self.sae.device)
        x_hat: Tensor = values @ self.sae.W_dec[indices] + self.sae.b_dec
        return x_hat

    def _read_one(self, x: Tensor) -> Reading:
        """A row [1, d_in] while an answer is decoded, in C or by NumPy.

        The model has just been through the processor's caches, where a small operation of torch takes 50 us, twice
        NumPy's; and some of torch's start threads, for which llama.cpp's have the cores.
        """
        sae, row = self.sae, x.numpy()[0]
        if self.screen is not None:
            reading = self.screen.read(INPUT_NORMS[sae.input_norm](x)[0])
            if reading.fvu is not None or not self.decoder:
                return reading
            acts = reading.acts
        elif np.isfinite(row).all():
            acts = self._encode_one(INPUT_NORMS[sae.input_norm](x)[0])
            if not self.decoder:
                return Reading(acts, None)
        else:
            raise ModelError(NOT_FINITE)
        with np.errstate(all="ignore"):
            _, undo = INPUT_NORMS[sae.input_norm](x)
            left = row - undo(torch.from_numpy(self._decode_one(acts))[None]).numpy()[0]
            return Reading(acts, float(left.dot(left)) / max(float(row.dot(row)), 1e-12))

    def _decode_one(self, acts: SparseActs) -> NDArray[np.float32]:
        """`_decode` by NumPy, and not by its BLAS, which has threads too."""
        assert self.sae.W_dec is not None
        assert self.sae.b_dec is not None
        active = self.sae.W_dec.numpy()[acts.indices]
        decoded: NDArray[np.float32] = np.einsum("a,ai->i", acts.values, active)
        decoded += self.sae.b_dec.numpy()
        return decoded

    def _encode_one(self, normed: Tensor) -> SparseActs:
        """`sae.encode` of a normed row [1, d_in], bit for bit; without a `k` in one pass over the pre-activations.

        What is no number is kept too, as relu keeps it.
        """
        if self.sae.k is not None:
            return sparse(self.sae.encode_normed(normed))[0]
        pre = (normed @ self.sae.W_enc + self.sae.b_enc).numpy()[0]
        active = np.flatnonzero(~(pre <= self._least))
        return SparseActs(active.astype(np.int32), pre[active])
