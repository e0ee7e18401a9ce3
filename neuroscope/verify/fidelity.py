"""How well the SAE describes the residual stream: mean L0 and the fraction of variance unexplained."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.norms import INPUT_NORMS
from neuroscope.verification import Fidelity

TOP = 10
"""Features of a token that are compared: as many as the server shows."""
ROWS = 1024
"""Residuals encoded at once."""


@torch.inference_mode()
def fidelity(sae: SparseAutoencoder, x: Tensor) -> Fidelity:
    """Of residuals x [n, d_in]."""
    mean = x.double().mean(0)
    active = 0
    error = variance = 0.0
    for rows in torch.split(x, ROWS):
        acts = sae.encode(rows)
        active += int((acts > 0).sum())
        error += float((rows - sae.decode(acts, rows)).double().square().sum())
        variance += float((rows.double() - mean).square().sum())
    return Fidelity(len(x), active / len(x), error / max(variance, 1e-12))


def by_stratum(sae: SparseAutoencoder, residuals: Mapping[str, Tensor]) -> dict[str, Fidelity]:
    """For each kind of text by itself."""
    return {stratum: fidelity(sae, x) for stratum, x in residuals.items()}


def by_input_norm(sae: SparseAutoencoder, x: Tensor) -> dict[str, Fidelity]:
    """With every input norm in turn, the weights unchanged: shows which one the weights were made for."""
    found = {}
    for name in INPUT_NORMS:
        other = copy.copy(sae)
        other.input_norm = name
        found[name] = fidelity(other, x)
    return found


@torch.inference_mode()
def top_overlap(sae: SparseAutoencoder, x: Tensor, other: Tensor, k: int = TOP) -> float:
    """Mean share of the k strongest features of each row of x [n, d_in] that are among those of that row of `other`.

    A row with fewer than k active features counts by as many as it has; without any, not at all.
    """
    shares = []
    for rows, others in zip(torch.split(x, ROWS), torch.split(other, ROWS), strict=True):
        marks = []
        for acts in (sae.encode(rows), sae.encode(others)):
            top = acts.topk(min(k, acts.shape[-1]), dim=-1)
            marks.append(torch.zeros_like(acts, dtype=torch.bool).scatter_(-1, top.indices, top.values > 0))
        active = marks[0].sum(-1)
        shares.append(((marks[0] & marks[1]).sum(-1) / active.clamp_min(1))[active > 0])
    return float(torch.cat(shares).mean())
