"""Fixtures of the whole suite: tiny random models and an SAE, saved once and loaded as real ones are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.tiny import TINY_LAYER, save_tiny_gemma, save_tiny_llama, save_tiny_sae

from neuroscope.engine import Engine
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder, load_sae


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_gemma_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_gemma(tmp_path_factory.mktemp("tiny-gemma"))


@pytest.fixture(scope="session")
def tiny_llama_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def tiny_gemma(tiny_gemma_path: Path) -> tuple[Any, Any]:
    """(model, tokenizer), float32 on the CPU."""
    return load_model(tiny_gemma_path, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def tiny_llama(tiny_llama_path: Path) -> tuple[Any, Any]:
    """(model, tokenizer), float32 on the CPU."""
    return load_model(tiny_llama_path, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def tiny_sae_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_sae(tmp_path_factory.mktemp("tiny-sae") / "params.npz")


@pytest.fixture(scope="session")
def tiny_sae(tiny_sae_path: Path) -> SparseAutoencoder:
    """64 random features over 32 dimensions."""
    return load_sae(tiny_sae_path, device="cpu")


@pytest.fixture
def tiny_engine(tiny_gemma: tuple[Any, Any], tiny_sae: SparseAutoencoder) -> Engine:
    """A fresh engine on the tiny Gemma 2, hooked at layer 1 of 3."""
    model, tokenizer = tiny_gemma
    return Engine(TorchBackend(model, tokenizer, TINY_LAYER), tiny_sae, ChatTokenizer(tokenizer))
