"""What fires, found in blocks of features: an SAE's dense activations are never in memory as a whole.

A block's pre-activations are made, compared once and forgotten; only firings are copied to the host. The memory it
takes is BLOCK_CELLS times 5 bytes (a float32 and a truth value) whatever the width of the SAE, plus the firings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.norms import INPUT_NORMS

BLOCK_CELLS = {"cpu": 2**20}
"""Activations [rows, features] of one block: 4 MB in float32, which a CPU still has in its cache when it compares."""

ACCELERATOR_CELLS = 2**25
"""128 MB: enough work for a kernel, little beside the model."""

BLOCK_ROWS = 1024
"""Tokens of a block at most, so that a block has features enough for the matrix product to be fast."""


@dataclass(frozen=True, slots=True, eq=False)
class Fired:
    """The firings of some tokens, ordered by token, then feature."""

    l0: NDArray[np.int64]  # [t]
    feature: NDArray[np.int32]  # [m]
    value: NDArray[np.float32]  # [m]


def fired(sae: SparseAutoencoder, x: Tensor, cells: int | None = None) -> Fired:
    """The active features of residuals x [t, d_in], encoded in blocks of `cells` activations.

    A value that is not finite counts as a firing, so that whoever looks at the values sees it.
    """
    if cells is None:
        cells = BLOCK_CELLS.get(sae.device.type, ACCELERATOR_CELLS)
    rows = max(1, min(BLOCK_ROWS, cells))
    x = x.to(sae.device)
    parts = [_fired(sae, part, cells) for part in torch.split(x, rows)] if len(x) else []
    if not parts:
        return Fired(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    return Fired(*(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)))


def _fired(sae: SparseAutoencoder, x: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """Firings per row, features and values of x [rows, d_in]."""
    normed, _ = INPUT_NORMS[sae.input_norm](x.float())
    find = _above_threshold if sae.k is None else _largest
    row, feature, value = find(sae, normed, cells)
    return torch.bincount(row, minlength=len(x)), feature.to(torch.int32), value


def _above_threshold(sae: SparseAutoencoder, normed: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    found = []
    for first, pre, silent in _blocks(sae, normed, cells):
        cell = torch.nonzero(silent.logical_not_().view(-1)).squeeze(1)
        row, feature = cell // pre.shape[1], cell % pre.shape[1] + first
        found.append((row, feature, pre.view(-1)[cell]))
    row, feature, value = (torch.cat(column) for column in zip(*found, strict=True))
    if len(found) > 1:  # blocks ascend in features
        order = torch.argsort(row, stable=True)
        row, feature, value = row[order], feature[order], value[order]
    return row, feature, value


def _largest(sae: SparseAutoencoder, normed: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of each row: those of the blocks so far against those of the next."""
    k = sae.k or 1
    values = normed.new_zeros((len(normed), 0))
    features = torch.zeros((len(normed), 0), dtype=torch.int64, device=normed.device)
    for first, pre, silent in _blocks(sae, normed, cells):
        best, at = pre.masked_fill_(silent, 0.0).topk(min(k, pre.shape[1]))
        values, features = torch.cat([values, best], 1), torch.cat([features, at + first], 1)
        values, kept = values.topk(min(k, values.shape[1]))
        features = features.gather(1, kept)
    features, order = features.sort(dim=1)
    values = values.gather(1, order)
    row, column = torch.nonzero((values <= 0).logical_not_(), as_tuple=True)
    return row, features[row, column], values[row, column]


def _blocks(sae: SparseAutoencoder, normed: Tensor, cells: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first feature, pre [rows, features], where relu and threshold leave nothing), each valid until the next."""
    width = max(1, min(sae.d_sae, cells // len(normed)))
    floats, truths = _workspace(normed.device, normed.dtype, min(cells, BLOCK_ROWS * sae.d_sae))
    for first in range(0, sae.d_sae, width):
        block = slice(first, min(first + width, sae.d_sae))
        size = len(normed) * (block.stop - first)
        pre, silent = floats[:size].view(len(normed), -1), truths[:size].view(len(normed), -1)
        torch.addmm(sae.b_enc[block], normed, sae.W_enc[:, block], out=pre)
        # Not `pre > threshold` turned around: that is false of a NaN, which must not pass for silence.
        torch.le(pre, sae.threshold[block].clamp_min(0), out=silent)
        yield first, pre, silent


@lru_cache(maxsize=1)
def _workspace(device: torch.device, dtype: torch.dtype, cells: int) -> tuple[Tensor, Tensor]:
    """Room for a block and its comparison, kept from one batch to the next.

    Taken and given back each time, between the firings that stay, it would leave holes in the heap that the next one
    does not fit: hundreds of megabytes at 131,072 features.
    """
    with torch.inference_mode(False):
        truths = torch.empty(cells, dtype=torch.bool, device=device)
        return torch.empty(cells, dtype=dtype, device=device), truths
