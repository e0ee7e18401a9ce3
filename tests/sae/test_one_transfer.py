"""What a GPU would transfer at once is what is found in several steps. On the CPU, where the same operations run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fakes.recorders import FROM_OR_TO_HOST, Tape

from neuroscope.errors import ModelError
from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.autoencoder import Reading
from neuroscope.sae.norms import INPUT_NORMS
from neuroscope.sae.one_transfer import MOST, packed, read_one
from neuroscope.sae.reading import FeatureReader

D_IN, D_SAE = 24, 700


def made(threshold: float = 1.0, **options: Any) -> SparseAutoencoder:
    torch.manual_seed(0)
    W_enc, W_dec = torch.randn(D_IN, D_SAE), torch.randn(D_SAE, D_IN) / 200
    bias, b_dec = torch.randn(D_SAE), torch.randn(D_IN)
    return SparseAutoencoder(W_enc, bias, torch.full((D_SAE,), threshold), W_dec, b_dec, **options)


def same(found: Reading | None, expected: Reading) -> bool:
    assert found is not None
    acts, others = found.acts, expected.acts
    assert found.fvu == pytest.approx(expected.fvu, rel=1e-5)
    return (acts.indices.tolist(), acts.values.tobytes()) == (
        others.indices.tolist(),
        others.values.tobytes(),
    )


@pytest.mark.parametrize("norm", sorted(INPUT_NORMS))
@pytest.mark.parametrize("k", [None, 1, 9, 700])
@pytest.mark.parametrize("threshold", [-1.0, 3.0, 1e9])
def test_one_transfer_brings_what_several_steps_find(norm: str, k: int | None, threshold: float) -> None:
    sae = made(threshold, input_norm=norm, k=k)
    reader = FeatureReader(sae)
    reader._least = None  # row by row it would read as a processor does
    for row in torch.randn(8, 1, D_IN):
        assert same(read_one(sae, row, D_SAE, decoder=True), reader.read(row)[0])
        found = read_one(sae, row.bfloat16(), D_SAE, decoder=False)
        assert found is not None
        assert found.fvu is None
        assert found.acts.indices.dtype == np.int32


def test_a_reader_of_another_device_takes_it_for_single_rows() -> None:
    sae = made()
    reader = FeatureReader(sae)
    rows = torch.randn(3, D_IN)
    expected = reader.read(rows)
    reader._at_once = True
    assert [
        same(reader.read(row[None])[0], known) for row, known in zip(rows, expected, strict=True)
    ] == 3 * [True]
    reader._most = 5  # fewer than are active: then in several steps, until there is room
    assert read_one(sae, rows[:1], 5, decoder=True) is None
    for _ in range(10):
        assert same(reader.read(rows[:1])[0], expected[0])
    assert same(read_one(sae, rows[:1], reader._most, decoder=True), expected[0])
    assert reader._most < 2 * D_SAE
    assert FeatureReader(made(k=600))._most == 600


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_refused(bad: float) -> None:
    row = torch.zeros(1, D_IN)
    row[0, 3] = bad
    with pytest.raises(ModelError, match="not finite"):
        read_one(made(), row, MOST, decoder=True)


@pytest.mark.parametrize("decoder", [True, False])
def test_nothing_is_asked_of_the_device_on_the_way(decoder: bool) -> None:
    sae, row, tape = made(input_norm="rms"), torch.randn(1, D_IN), Tape()
    results: list[torch.Tensor] = []
    tape.record(lambda: results.append(packed(sae, row, MOST, decoder=decoder)))
    assert len(results) == 1
    names = tape.recordings[0].names
    assert "aten::topk" in names
    assert not names & FROM_OR_TO_HOST
