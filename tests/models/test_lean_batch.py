"""Batches of windows by the lean pass against the model's own, and when it is left alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.families import FAMILIES, VOCABULARY, WINDOW, save_family
from torch import Tensor

from neuroscope.models import kernels
from neuroscope.models.decode import distance
from neuroscope.models.hooks import decoder, residual_at
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend

Load = Callable[..., Any]
LAYER = 2
TOLERANCE = {"float32": 2e-5, "bfloat16": 0.16}
CAPPED = ("gemma2",)
"""Families left to the model's own pass: their attention caps scores."""


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    torch.set_num_threads(1)

    @cache
    def saved(name: str) -> Path:
        return save_family(name, tmp_path_factory.mktemp(name))

    return lambda name, dtype="float32", quantization="none": load_model(
        saved(name), device="cpu", dtype=dtype, quantization=quantization
    )[0]


def batch(lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of random tokens, padded on the right with what is no token of theirs."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, 0), mask


def both(model: Any) -> tuple[TorchBackend, TorchBackend]:
    """The model with the lean pass, and with its own alone."""
    return TorchBackend(model, None, LAYER), TorchBackend(model, None, LAYER, decode="model")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("small", [0, kernels.SMALL])
def test_a_padded_batch_gives_what_the_models_own_pass_gives(
    load: Load, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str, small: int
) -> None:
    """By either product, on rows within the sliding windows and beyond; zero where there is no token."""
    monkeypatch.setattr(kernels, "SMALL", small)
    lean, own = both(load(name, dtype))
    assert (lean.lean_pass is None) == (name in CAPPED)
    assert own.lean_pass is None
    for lengths in ([WINDOW, 17, 3, 1], [WINDOW + 30, 40], [1]):
        ids, mask = batch(lengths)
        found, expected = lean.residuals(ids, mask), own.residuals(ids, mask)
        assert found.dtype == expected.dtype
        assert not found[~mask].any()
        for row, length in enumerate(lengths):
            assert distance(found[row, :length], expected[row, :length]) < TOLERANCE[dtype]


@pytest.mark.parametrize("name", ["mistral", "gemma3", "phi3"])
def test_rows_that_a_sliding_window_cuts_are_left_to_the_model(load: Load, name: str) -> None:
    backend, own = both(load(name))
    assert backend.lean_pass is not None
    assert backend.lean_pass.fits(WINDOW)
    assert not backend.lean_pass.fits(WINDOW + 1)
    ids, mask = batch([WINDOW + 1, 5])
    assert torch.equal(backend.residuals(ids, mask), own.residuals(ids, mask))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_packed_layers_are_called_as_the_modules_they_are(load: Load, quantization: str) -> None:
    lean, own = both(load("llama", quantization=quantization))
    assert lean.lean_pass is not None
    ids, mask = batch([20, 9])
    assert distance(lean.residuals(ids, mask), own.residuals(ids, mask)) < 0.05


def test_the_same_batch_has_the_same_bits(load: Load) -> None:
    """Whatever ran before it, in this process's backend or in another."""
    model = load("qwen3")
    first, second = TorchBackend(model, None, LAYER), TorchBackend(model, None, LAYER)
    ids, mask = batch([30, 12, 7])
    expected = first.residuals(ids, mask)
    second.residuals(*batch([90, 80], seed=1))
    assert torch.equal(second.residuals(ids, mask), expected)
    assert torch.equal(first.residuals(ids, mask), expected)


def test_a_pass_that_gives_other_numbers_is_not_used(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    model = load("llama")
    for layer in decoder(model).layers:
        own_forward = layer.mlp.forward
        layer.mlp.forward = lambda x, own_forward=own_forward: -own_forward(x)
    backend, own = both(model)
    with caplog.at_level(logging.INFO):
        assert backend.lean_pass is None
    assert "gives other numbers" in caplog.text
    ids, mask = batch([20, 9])
    assert torch.equal(backend.residuals(ids, mask), own.residuals(ids, mask))


def test_layers_of_an_unknown_class_are_left_to_the_model(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    model = load("llama")
    layers = decoder(model).layers
    layers[1].__class__ = type("SparseDecoderLayer", (type(layers[1]),), {})
    with caplog.at_level(logging.INFO):
        assert TorchBackend(model, None, LAYER).lean_pass is None
    assert "class SparseDecoderLayer are not known" in caplog.text


def test_a_hook_placed_later_is_obeyed(load: Load) -> None:
    """Whoever steers a layer gets the steered residual."""
    model = load("llama")
    backend = TorchBackend(model, None, LAYER)
    ids, mask = batch([8])
    plain = backend.residuals(ids, mask)
    with residual_at(model, 1) as tap:
        assert distance(backend.residuals(ids, mask), plain) < TOLERANCE["float32"]
        assert tap.take().shape == (1, 8, 32)
