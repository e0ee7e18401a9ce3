"""Running a chunk: lack of memory, outlier norms and values that are not finite, with a model that is a table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep import encoding
from neuroscope.sweep.activations import BatchLimit, ChunkActivations, Instrument, measure
from neuroscope.sweep.plan import SweepOptions
from neuroscope.sweep.windows import ChunkTokens

BOS = 9
OPTIONS = SweepOptions(window=4, batch=8)


class Table:
    """A model whose residual is a row of a table, whatever the context; it has memory for `fits` rows."""

    def __init__(self, table: Tensor, fits: int = 100, error: RuntimeError | None = None) -> None:
        self.table, self.fits, self.error = table, fits, error
        self.rows: list[int] = []

    def residuals(self, ids: Tensor, mask: Tensor) -> Tensor:
        if len(ids) > self.fits:
            raise self.error or torch.OutOfMemoryError("CUDA out of memory.")
        self.rows.append(len(ids))
        return self.table[ids]


def instrument(table: Tensor | None = None, **options: object) -> Instrument:
    """Feature i fires on token i with activation 2 and on no other; BOS has a huge norm."""
    if table is None:
        table = 2.0 * torch.eye(10)
        table[BOS] = 1e6
    sae = SparseAutoencoder(torch.eye(10), torch.zeros(10), torch.ones(10))
    return Instrument(Table(table, **options), sae, BOS)  # type: ignore[arg-type]


def tokens_of(*documents: list[int]) -> ChunkTokens:
    lengths = np.array([len(ids) for ids in documents], np.int64)
    document = np.repeat(np.arange(len(documents), dtype=np.int32), lengths)
    position = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    return ChunkTokens(
        np.concatenate(documents).astype(np.int32), document.copy(), document, position, lengths
    )


DOCUMENTS = tokens_of([1, 2, 3, 4, 5, 6, 7], [3], [2, 2], [8, 7, 6, 5])


def firings(found: ChunkActivations) -> list[tuple[int, int, float]]:
    return list(zip(found.firing_token.tolist(), found.feature.tolist(), found.value.tolist(), strict=True))


def test_every_content_token_is_measured_once_in_order() -> None:
    found = measure(DOCUMENTS, instrument(), OPTIONS, BatchLimit(8))
    assert found.token.tolist() == list(range(14))
    assert found.l0.tolist() == [1] * 14
    assert firings(found) == [(i, int(DOCUMENTS.ids[i]), 2.0) for i in range(14)]
    assert found.outliers == 0  # BOS, whose norm is huge, is not measured at all


def test_scaffold_is_run_and_not_measured() -> None:
    tokens = tokens_of([1, 2, 3, 4])
    tokens.segment[1] = -1
    found = measure(tokens, instrument(), OPTIONS, BatchLimit(8))
    assert found.token.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_lack_of_memory_halves_the_batch_and_goes_on(error: RuntimeError, caplog) -> None:
    limit = BatchLimit(8)
    cramped = instrument(fits=2, error=error)
    found = measure(DOCUMENTS, cramped, OPTIONS, limit)
    assert firings(found) == firings(measure(DOCUMENTS, instrument(), OPTIONS, BatchLimit(8)))
    assert limit.rows == 1  # 7 windows, then 3, then 1
    assert max(cramped.backend.rows) <= 2  # type: ignore[attr-defined]
    assert "Out of memory" in caplog.text


def test_a_window_that_does_not_fit_alone_names_the_settings_to_change() -> None:
    with pytest.raises(ModelError, match=r"single window.*sweep\.window"):
        measure(DOCUMENTS, instrument(fits=0), OPTIONS, BatchLimit(8))


def test_other_errors_of_the_model_are_not_taken_for_lack_of_memory() -> None:
    broken = instrument(fits=0, error=RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        measure(DOCUMENTS, broken, OPTIONS, BatchLimit(8))


def test_positions_of_outlier_norm_are_left_out_and_counted() -> None:
    table = 2.0 * torch.eye(10)
    table[8] *= 11
    table[7] *= 9
    found = measure(DOCUMENTS, instrument(table), OPTIONS, BatchLimit(8))
    assert found.outliers == 1
    assert 8 not in found.feature
    assert 7 in found.feature
    assert len(found.token) == 13


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_document_with_a_value_that_is_not_finite_is_quarantined(value: float) -> None:
    table = 2.0 * torch.eye(10)
    table[8, 3] = value
    found = measure(DOCUMENTS, instrument(table), OPTIONS, BatchLimit(8))
    assert found.quarantined.tolist() == [3]
    assert found.token.tolist() == list(range(10))
    assert np.isfinite(found.value).all()


def test_encoding_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = firings(measure(DOCUMENTS, instrument(), OPTIONS, BatchLimit(8)))
    monkeypatch.setitem(encoding.BLOCK_CELLS, "cpu", 25)
    assert firings(measure(DOCUMENTS, instrument(), OPTIONS, BatchLimit(8))) == whole


def test_a_chunk_of_empty_documents_measures_nothing() -> None:
    found = measure(tokens_of([], []), instrument(), OPTIONS, BatchLimit(8))
    assert found.token.tolist() == found.feature.tolist() == found.quarantined.tolist() == []


def test_tokens_are_told_as_they_are_done() -> None:
    told: list[int] = []
    measure(DOCUMENTS, instrument(), SweepOptions(window=4, batch=2), BatchLimit(2), told.append)
    assert sum(told) == 14
    assert len(told) == 4
