"""From residuals to features, row by row: what the SAE finds, and how much it leaves unexplained."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae.autoencoder import SparseActs, SparseAutoencoder, fvu, sparse
from neuroscope.sae.norms import INPUT_NORMS
from neuroscope.sae.screen import screen_of


class Reading(NamedTuple):
    """One position's features."""

    acts: SparseActs
    fvu: float | None
    """Fraction of the residual's variance the SAE does not explain; None without a decoder."""


@dataclass(slots=True)
class Clock:
    """How often residuals were read, and the seconds it took in all."""

    count: int = 0
    seconds: float = 0.0


class FeatureReader:
    """Reads residuals with one SAE. `decoder=False` leaves the fraction of variance unexplained out."""

    def __init__(self, sae: SparseAutoencoder, *, decoder: bool = True) -> None:
        self.sae = sae
        self.screen = screen_of(sae)
        """For single rows of a large SAE; None where the whole encoder is as fast."""
        one_pass = sae.device.type == "cpu" and sae.k is None
        self._least = sae.threshold.clamp_min(0).numpy() if one_pass else None
        """Pre-activations [d_sae] that are not passed by silent features; None where a row's others matter, too."""
        self.decoder = decoder and sae.W_dec is not None and sae.b_dec is not None
        self.clock = Clock()

    def read(self, residual: Tensor) -> list[Reading]:
        """One Reading for each row of `residual` [n, d_in].

        Raises ModelError when a residual is not finite, before it can become a feature.
        """
        started = time.perf_counter()
        readings = self._read(residual)
        self.clock.seconds += time.perf_counter() - started
        self.clock.count += 1
        return readings

    @torch.inference_mode()
    def _read(self, residual: Tensor) -> list[Reading]:
        residual = residual.to(self.sae.device)
        if not torch.isfinite(residual).all():
            raise ModelError(
                "The residual stream is not finite at the hooked layer. Try dtype bfloat16 or float32."
            )
        x = residual.float()
        normed, undo = INPUT_NORMS[self.sae.input_norm](x)
        if self.screen is not None and len(residual) == 1:
            rows = [self.screen.read(normed[0])]
        elif self._least is not None and len(residual) == 1:
            rows = [self._one(normed)]
        else:
            rows = sparse(self.sae.encode(residual))
        if not self.decoder:
            return [Reading(acts, None) for acts in rows]
        x_hat = undo(torch.stack([self._decode(acts) for acts in rows]))
        return [Reading(*row) for row in zip(rows, fvu(x, x_hat).tolist(), strict=True)]

    def _one(self, normed: Tensor) -> SparseActs:
        """`sae.encode` of one row [1, d_in], bit for bit, its features told apart in one pass instead of six.

        What is no number is kept too, as relu keeps it.
        """
        assert self._least is not None
        pre = (normed @ self.sae.W_enc + self.sae.b_enc).numpy()[0]
        active = np.flatnonzero(~(pre <= self._least))
        return SparseActs(active.astype(np.int32), pre[active])

    def _decode(self, acts: SparseActs) -> Tensor:
        """`sae.decode` of one token, its norm not undone, reading only the active rows of W_dec: of 16k, some 70."""
        assert self.sae.W_dec is not None
        assert self.sae.b_dec is not None
        indices = torch.from_numpy(acts.indices).to(self.sae.device)
        values = torch.from_numpy(acts.values).to(self.sae.device)
        x_hat: Tensor = values @ self.sae.W_dec[indices] + self.sae.b_dec
        return x_hat
