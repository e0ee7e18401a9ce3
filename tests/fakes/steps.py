"""Ways to decode a token, held against each other on small random models."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fakes.families import VOCABULARY, save_family
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend

Load = Callable[..., Any]
"""The name of a family, and a dtype -> a fresh model."""


def loading(folders: pytest.TempPathFactory) -> Load:
    """Through the real loading; each family is written once."""

    @cache
    def saved(name: str) -> Path:
        return save_family(name, folders.mktemp(name))

    return lambda name, dtype="float32": load_model(saved(name), device="cpu", dtype=dtype)[0]


def ids_of(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(10, VOCABULARY, (length,), generator=generator).tolist()
    return ids


def distance(found: Tensor, expected: Tensor) -> float:
    """As a share of the length of `expected`."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def assert_the_same(one: TorchBackend, other: TorchBackend, ids: list[int], tolerance: float = 2e-5) -> None:
    """Token by token."""
    for token in ids:
        found, expected = one.forward([token]), other.forward([token])
        assert distance(found.residual, expected.residual) < tolerance
        assert distance(found.logits, expected.logits) < tolerance
        assert found.logits.dtype == torch.float32
