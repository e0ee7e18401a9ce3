"""Fixtures of the whole suite: tiny random models and an SAE, saved once and loaded as real ones are.

Torch and transformers are imported by the fixtures that need them: most tests do without.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from neuroscope.engine import Engine
    from neuroscope.sae import SparseAutoencoder

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch: tests run side by side, their matrices are small

LONGEST = "tests/workflow/"
"""Its tests share one run of the whole pipeline, and take longest: one process has them, from the start."""


class ByFile(LoadScopeScheduling):
    """Tests of one file share its fixtures, so one process runs them."""

    def _split_scope(self, nodeid: str) -> str:
        return LONGEST if nodeid.startswith(LONGEST) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture(scope="session")
def tiny_gemma_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fakes.tiny import save_tiny_gemma

    return save_tiny_gemma(tmp_path_factory.mktemp("tiny-gemma"))


@pytest.fixture(scope="session")
def tiny_llama_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fakes.tiny import save_tiny_llama

    return save_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def tiny_gemma(tiny_gemma_path: Path) -> tuple[Any, Any]:
    """(model, tokenizer), float32 on one core."""
    return _load(tiny_gemma_path)


@pytest.fixture(scope="session")
def tiny_llama(tiny_llama_path: Path) -> tuple[Any, Any]:
    """(model, tokenizer), float32 on one core."""
    return _load(tiny_llama_path)


@pytest.fixture(scope="session")
def tiny_sae_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fakes.tiny import save_tiny_sae

    return save_tiny_sae(tmp_path_factory.mktemp("tiny-sae") / "params.npz")


@pytest.fixture(scope="session")
def tiny_sae(tiny_sae_path: Path) -> SparseAutoencoder:
    """64 random features over 32 dimensions."""
    from neuroscope.sae import load_sae

    return load_sae(tiny_sae_path, device="cpu")


@pytest.fixture
def tiny_engine(tiny_gemma: tuple[Any, Any], tiny_sae: SparseAutoencoder) -> Engine:
    """A fresh engine on the tiny Gemma 2, hooked at layer 1 of 3."""
    from fakes.tiny import TINY_LAYER

    from neuroscope.engine import Engine
    from neuroscope.models.chat import ChatTokenizer
    from neuroscope.models.torch_backend import TorchBackend

    model, tokenizer = tiny_gemma
    return Engine(TorchBackend(model, tokenizer, TINY_LAYER), tiny_sae, ChatTokenizer(tokenizer))


def _load(path: Path) -> tuple[Any, Any]:
    import torch

    from neuroscope.models.loading import load_model

    torch.set_num_threads(1)  # matrices this small are slower on several
    return load_model(path, device="cpu", dtype="float32")
