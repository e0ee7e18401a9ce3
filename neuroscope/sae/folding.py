"""Folds what a release does around its weights into the weights: exactly, in float64, cast to float32 once at the end.

Each step says what the release computes and which canonical weights compute the same. The two big matrices are not
touched before the end: a step changes biases, thresholds and one factor per feature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.checks import Array, check_finite

Vector = NDArray[np.float64]
_ROWS = 256
"""Rows of W_enc that are widened to float64 together."""


class Weights:
    """A release's weights on the way to `pre = x @ (W_enc * encoder_scale) + b_enc`, `acts = relu(pre) * (pre >
    threshold)`, `x_hat = (acts * decoder_scale) @ W_dec + b_dec`.
    """

    def __init__(
        self,
        file: Path,
        W_enc: Array,
        b_enc: Array,
        W_dec: Array | None = None,
        b_dec: Array | None = None,
        threshold: Array | float = 0.0,
    ) -> None:
        """W_enc [d_in, d_sae] decides the shapes. W_dec [d_sae, d_in] is None when neither a fold nor a user needs it,
        b_dec [d_in] None is zero, `threshold` one a feature or one for all.

        Raises SAEFormatError naming `file`, as every later step, when a shape does not fit.
        """
        d_in, d_sae = W_enc.shape
        self.file, self.W_enc, self.W_dec = file, W_enc, W_dec
        self.b_dec: Vector = self._vector("b_dec", np.zeros(d_in) if b_dec is None else b_dec, d_in)
        self.b_enc: Vector = self._vector("b_enc", b_enc, d_sae)
        spread = np.full(d_sae, threshold) if np.ndim(threshold) == 0 else np.asarray(threshold)
        self.threshold: Vector = self._vector("threshold", spread, d_sae)
        self.encoder_scale: Vector = np.ones(d_sae)
        self.decoder_scale: Vector = np.ones(d_sae)
        if W_dec is not None and W_dec.shape != (d_sae, d_in):
            raise self._misfit("W_dec", W_dec.shape, (d_sae, d_in))

    @classmethod
    def gated(
        cls,
        file: Path,
        W_enc: Array,
        W_dec: Array | None,
        b_dec: Array | None,
        *,
        r_mag: Array,
        b_mag: Array,
        b_gate: Array,
    ) -> Weights:
        """A Gated SAE (Rajamanoharan et al. 2024, arXiv 2404.16014, section 3.2) is a JumpReLU.

        acts = (x @ W_enc + b_gate > 0) * relu(exp(r_mag) * (x @ W_enc) + b_mag). With pre the second argument, the
        gate is open where pre > b_mag - exp(r_mag) * b_gate; below 0 that threshold is relu's.
        """
        weights = cls(file, W_enc, b_mag, W_dec, b_dec)
        d_sae = W_enc.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            weights.encoder_scale = np.exp(weights._vector("r_mag", r_mag, d_sae))
            weights.threshold = weights.b_enc - weights.encoder_scale * weights._vector(
                "b_gate", b_gate, d_sae
            )
        weights.clip_threshold()
        return weights

    def clip_threshold(self) -> None:
        """Thresholds below 0 become 0: of a negative pre, relu leaves nothing either way."""
        self.threshold = np.maximum(self.threshold, 0.0)

    def subtract_b_dec(self) -> None:
        """(x - b_dec) @ W_enc + b_enc: b_enc takes -b_dec @ W_enc. Before `scale_input`, when x is scaled first."""
        product = np.zeros(len(self.b_enc))
        for row in range(0, len(self.b_dec), _ROWS):
            product += self.b_dec[row : row + _ROWS] @ self.W_enc[row : row + _ROWS].astype(np.float64)
        self.b_enc = self.b_enc - product * self.encoder_scale

    def scale_input(self, scale: float) -> None:
        """The release reads x * scale and compares x_hat with that: W_enc takes scale, W_dec and b_dec 1 / scale."""
        self.encoder_scale = self.encoder_scale * scale
        self.decoder_scale = self.decoder_scale / scale
        self.b_dec = self.b_dec / scale

    def gate_by_decoder_norm(self) -> None:
        """The gate compares pre * |W_dec row| with the threshold, the acts stay pre: the threshold takes 1 / norm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            raised = self.threshold / self.decoder_norms()
        # A feature without a decoder row never passes: no float32 pre is above this.
        self.threshold = np.where(np.isfinite(raised), raised, np.finfo(np.float32).max)

    def rescale_acts_by_decoder_norm(self) -> None:
        """acts are multiplied by |W_dec row| after W_enc, before threshold and k, and divided by it before W_dec."""
        norms = self.decoder_norms()
        self.encoder_scale = self.encoder_scale * norms
        self.b_enc = self.b_enc * norms
        self.decoder_scale = np.divide(self.decoder_scale, norms, out=np.zeros_like(norms), where=norms > 0)

    def decoder_norms(self) -> Vector:
        """|W_dec row| [d_sae] as the file has them."""
        assert self.W_dec is not None
        squares: Vector = np.einsum("fd,fd->f", self.W_dec, self.W_dec, dtype=np.float64)
        return np.sqrt(squares)

    def autoencoder(self, *, decoder: bool, input_norm: str, k: int | None = None) -> SparseAutoencoder:
        """The canonical SAE, float32 on the CPU. Raises SAEFormatError when a folded value is not finite."""
        vectors = {"b_enc": self.b_enc, "threshold": self.threshold}
        arrays = {
            "W_enc": _scaled(self.W_enc, self.encoder_scale[None, :]),
            **{name: _float32(vector) for name, vector in vectors.items()},
        }
        if decoder and self.W_dec is not None:
            arrays["W_dec"] = _scaled(self.W_dec, self.decoder_scale[:, None])
            arrays["b_dec"] = _float32(self.b_dec)
        for name, array in arrays.items():
            check_finite(self.file, name, array)
        tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        try:
            return SparseAutoencoder(**tensors, input_norm=input_norm, k=k)
        except SAEFormatError as error:
            raise SAEFormatError(f"{self.file}: {error}") from None

    def _vector(self, name: str, vector: Array, size: int) -> Vector:
        if vector.shape != (size,):
            raise self._misfit(name, vector.shape, (size,))
        return vector.astype(np.float64)

    def _misfit(self, name: str, found: tuple[int, ...], asked: tuple[int, ...]) -> SAEFormatError:
        return SAEFormatError(
            f"{self.file}: {name} has shape {found}; W_enc {self.W_enc.shape} asks for {asked}. Check sae.format."
        )


def _scaled(matrix: Array, scale: Vector) -> NDArray[np.float32]:
    """matrix * scale, multiplied in float64, in memory once."""
    if (scale == 1.0).all():
        return _float32(matrix)
    out = np.empty(matrix.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(matrix, scale, out=out, dtype=np.float64, casting="same_kind")
    return out


def _float32(array: Any) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, np.float32)
