"""The sparse autoencoder: encode, decode, and the sparse form in which activations travel.

Canonical form, row vectors: `W_enc [d_in, d_sae]`, `W_dec [d_sae, d_in]`. How a release stores its weights is its
format's business (`formats/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from neuroscope.errors import SAEFormatError
from neuroscope.sae.norms import INPUT_NORMS

NOT_FINITE = (
    "The residual stream is not finite at the hooked layer. Try dtype bfloat16 or float32; with these, "
    "or a GGUF file, fetch the model anew."
)


@dataclass(frozen=True, slots=True)
class SparseActs:
    """The active features of one token."""

    indices: np.ndarray
    """[m] int32, ascending."""
    values: np.ndarray
    """[m] float32, each greater than zero."""

    @property
    def l0(self) -> int:
        return len(self.indices)


class Reading(NamedTuple):
    """One position's features."""

    acts: SparseActs
    fvu: float | None
    """Fraction of the residual's variance the SAE does not explain; None without a decoder."""


class SparseAutoencoder:
    """A JumpReLU sparse autoencoder (Rajamanoharan et al. 2024, arXiv 2407.14435), with `k` a TopK one (Gao et al.
    2024, arXiv 2406.04093):

        pre  = norm(x) @ W_enc + b_enc
        acts = relu(pre) * (pre > threshold), with k only the k largest of a token
        x_hat = undo(acts @ W_dec + b_dec)

    `threshold` [d_sae] is per feature and compared strictly; zero everywhere gives a plain ReLU. Everything else that
    releases do (fixed input scales, a subtracted b_dec, gates) is folded into these weights by `folding`. W_dec and
    b_dec are None when only the encoder was loaded. All weights are float32 on one device.
    """

    def __init__(
        self,
        W_enc: Tensor,
        b_enc: Tensor,
        threshold: Tensor,
        W_dec: Tensor | None = None,
        b_dec: Tensor | None = None,
        *,
        input_norm: str = "none",
        k: int | None = None,
    ) -> None:
        if input_norm not in INPUT_NORMS:
            raise SAEFormatError(
                f"input_norm {input_norm!r} is not known. Accepted: {', '.join(INPUT_NORMS)}."
            )
        d_in, d_sae = W_enc.shape
        expected: dict[str, tuple[Tensor, tuple[int, ...]]] = {
            "b_enc": (b_enc, (d_sae,)),
            "threshold": (threshold, (d_sae,)),
        }
        if W_dec is not None:
            expected["W_dec"] = (W_dec, (d_sae, d_in))
        if b_dec is not None:
            expected["b_dec"] = (b_dec, (d_in,))
        for name, (tensor, shape) in expected.items():
            if tuple(tensor.shape) != shape:
                raise SAEFormatError(
                    f"{name} has shape {tuple(tensor.shape)}; W_enc {tuple(W_enc.shape)} asks for {shape}."
                )
        if k is not None and not 1 <= k <= d_sae:
            raise SAEFormatError(f"k is {k}; a token keeps between 1 and all {d_sae} features.")
        self.W_enc, self.b_enc, self.threshold = W_enc, b_enc, threshold
        self.W_dec, self.b_dec = W_dec, b_dec
        self.input_norm, self.k = input_norm, k
        self.d_in, self.d_sae = d_in, d_sae

    @property
    def activation(self) -> str:
        """jumprelu or topk."""
        return "jumprelu" if self.k is None else "topk"

    @property
    def device(self) -> torch.device:
        return self.W_enc.device

    def encode(self, x: Tensor) -> Tensor:
        """acts [..., d_sae] of residuals x [..., d_in]; float32 whatever the model's dtype."""
        normed, _ = INPUT_NORMS[self.input_norm](x.float())
        return self.encode_normed(normed)

    def encode_normed(self, normed: Tensor) -> Tensor:
        """acts [..., d_sae] of what the input norm made of residuals, float32 [..., d_in]."""
        pre = normed @ self.W_enc + self.b_enc
        acts = torch.relu(pre) * (pre > self.threshold)
        if self.k is None:
            return acts
        values, features = acts.topk(self.k, sorted=False)
        return torch.zeros_like(acts).scatter_(-1, features, values)

    def decode(self, acts: Tensor, x: Tensor | None = None) -> Tensor:
        """x_hat [..., d_in] of acts [..., d_sae], in the raw residual's space.

        An input norm other than none takes each token's scale from the residual `x` [..., d_in] the acts came from.
        """
        if self.W_dec is None or self.b_dec is None:
            raise SAEFormatError("This SAE was loaded without its decoder. Load it with decoder=True.")
        x_hat = acts @ self.W_dec + self.b_dec
        if self.input_norm == "none":
            return x_hat
        if x is None:
            raise ValueError(f"Decoding after input_norm {self.input_norm} needs the residual x itself.")
        _, undo = INPUT_NORMS[self.input_norm](x.float())
        return undo(x_hat)


def top_k(acts: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest activations of one token's acts [d_sae]: (indices, values), descending, active ones only."""
    values, indices = torch.topk(acts, min(k, acts.shape[-1]))
    active = values > 0
    return indices[active], values[active]


def sparse(acts: Tensor) -> list[SparseActs]:
    """acts [n, d_sae] as one SparseActs per token."""
    rows, features = torch.nonzero(acts, as_tuple=True)
    values = acts[rows, features].cpu().numpy()
    columns = features.to(torch.int32).cpu().numpy()
    bounds = np.searchsorted(rows.cpu().numpy(), np.arange(acts.shape[0] + 1))
    return [SparseActs(columns[start:end], values[start:end]) for start, end in pairwise(bounds)]


def fvu(x: Tensor, x_hat: Tensor, mean: Tensor | None = None) -> Tensor:
    """Fraction of variance unexplained per token, [n]: |x - x_hat|^2 / |x - mean|^2.

    `mean` [d_in] is the mean residual; without it the norm of x itself is the denominator (an uncentred fraction).
    """
    x = x.float()
    centred = x if mean is None else x - mean
    return (x - x_hat).square().sum(-1) / centred.square().sum(-1).clamp_min(1e-12)
