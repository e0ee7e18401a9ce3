"""Runs a chunk's windows through model and SAE, and keeps what fired: sparse, in order of token and feature.

Which firings are kept as examples is `collect`'s business. Nothing dense outlives a batch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep.encoding import fired
from neuroscope.sweep.plan import SweepOptions
from neuroscope.sweep.windows import NO_LIMITS, BatchShape, ChunkTokens, batches, make_batch

log = logging.getLogger(__name__)


class ResidualSource(Protocol):
    """What the sweep needs of a model."""

    def residuals(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[rows, width, d_model] at the hooked layer."""


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """A model up to the hooked layer, with the SAE that reads its residual stream."""

    backend: ResidualSource
    sae: SparseAutoencoder
    bos_id: int | None
    """Put before every window; None for none."""
    shape: BatchShape = NO_LIMITS


class BatchLimit:
    """How many rows fit memory: starts at the configured batch and halves for the rest of the process."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def halve(self, failed_rows: int, width: int) -> None:
        """Take note that `failed_rows` rows did not fit. Raises ModelError when that was one row."""
        if failed_rows == 1:
            raise ModelError(
                f"Out of memory on a single window of {width} tokens. Lower sweep.window, or use a "
                "smaller dtype or another device."
            )
        self.rows = failed_rows // 2
        log.warning(
            "Out of memory on %d windows of %d tokens; going on with %d", failed_rows, width, self.rows
        )


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What the SAE says of some tokens; features and values are ordered by token, then feature."""

    token: NDArray[np.int64]  # [t] index in the chunk
    norm: NDArray[np.float32]  # [t] of the residual
    l0: NDArray[np.int64]  # [t] number of firings
    feature: NDArray[np.int32]  # [m]
    value: NDArray[np.float32]  # [m]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkActivations:
    """A chunk's firings without quarantined documents and outlier positions."""

    token: NDArray[np.int64]
    """Tokens measured, ascending, [t]."""
    l0: NDArray[np.int64]
    """Firings per measured token, [t]."""
    firing_token: NDArray[np.int64]
    """Token of each firing, ascending, [m]."""
    feature: NDArray[np.int32]
    value: NDArray[np.float32]
    quarantined: NDArray[np.int64]
    """Documents left out because a value in them is not finite."""
    outliers: int
    """Positions left out for their norm."""


def measure(
    tokens: ChunkTokens,
    instrument: Instrument,
    options: SweepOptions,
    limit: BatchLimit,
    on_tokens: Callable[[int], object] = lambda count: None,
) -> ChunkActivations:
    """Forward and encode a whole chunk; `on_tokens` hears of each batch's real tokens as it is done."""
    parts = []
    for windows in batches(tokens, options.window, instrument.bos_id, options.batch, instrument.shape):
        for part in _fitting(tokens, windows, instrument, limit):
            parts.append(part)
            on_tokens(len(part.token))
    return _without_outliers(tokens, _in_order(parts), options.outlier_norm)


def _fitting(
    tokens: ChunkTokens,
    windows: NDArray[np.int64],
    instrument: Instrument,
    limit: BatchLimit,
) -> Iterator[Measured]:
    """One batch, in pieces when it does not fit memory."""
    waiting = deque([windows])
    while waiting:
        piece = waiting.popleft()
        if len(piece) > limit.rows:
            waiting.extendleft([piece[limit.rows :], piece[: limit.rows]])
            continue
        try:
            measured = _run(tokens, piece, instrument)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            measured = None  # the exception holds the tensors that did not fit: go on outside of it
        if measured is None:
            limit.halve(len(piece), int(piece[:, 1].max()))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            waiting.appendleft(piece)
        else:
            yield measured


def is_out_of_memory(error: RuntimeError) -> bool:
    """CUDA raises a class of its own; the CPU allocator and MPS raise a RuntimeError that says so."""
    text = str(error).lower()
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )


@torch.inference_mode()
def _run(tokens: ChunkTokens, windows: NDArray[np.int64], instrument: Instrument) -> Measured:
    batch = make_batch(tokens, windows, instrument.bos_id)
    residual = instrument.backend.residuals(batch.ids, batch.mask)  # [rows, width, d_model]
    content = (batch.token >= 0) & (tokens.segment[np.maximum(batch.token, 0)] >= 0)
    cells = np.flatnonzero(content)
    x = residual.flatten(0, 1)[torch.from_numpy(cells).to(residual.device)]  # [t, d_model]
    norm = torch.linalg.vector_norm(x.float(), dim=-1).cpu().numpy()
    found = fired(instrument.sae, x)
    return Measured(batch.token.reshape(-1)[cells], norm, found.l0, found.feature, found.value)


def _in_order(parts: list[Measured]) -> Measured:
    """Batches put together in order of token, whatever order they ran in."""
    if not parts:
        none, nothing = np.zeros(0, np.int64), np.zeros(0, np.float32)
        return Measured(none, nothing, none, none.astype(np.int32), nothing)
    token, norm, l0 = (np.concatenate([getattr(p, name) for p in parts]) for name in ("token", "norm", "l0"))
    order = np.argsort(token, kind="stable")
    starts = np.cumsum(l0) - l0
    firing = expand(starts[order], l0[order])
    return Measured(
        token[order],
        norm[order],
        l0[order],
        np.concatenate([p.feature for p in parts])[firing],
        np.concatenate([p.value for p in parts])[firing],
    )


def expand(starts: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.int64]:
    """The ranges [start, start + count) one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    indices: NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return indices


def _without_outliers(tokens: ChunkTokens, found: Measured, outlier_norm: float) -> ChunkActivations:
    firing_row = np.repeat(np.arange(len(found.token)), found.l0)
    finite = np.isfinite(found.norm)
    finite[firing_row[~np.isfinite(found.value)]] = False
    document = tokens.document[found.token]
    quarantined = np.unique(document[~finite]).astype(np.int64)
    sound = ~np.isin(document, quarantined)
    median = np.median(found.norm[sound]) if sound.any() else 0.0
    outlier = sound & (found.norm > outlier_norm * median)
    kept = sound & ~outlier
    fires = kept[firing_row] & (found.value > 0)
    l0 = np.bincount(firing_row[fires], minlength=len(found.token))
    return ChunkActivations(
        found.token[kept],
        l0[kept],
        found.token[firing_row[fires]],
        found.feature[fires],
        found.value[fires],
        quarantined,
        int(outlier.sum()),
    )
