"""Fixtures of the whole suite: tiny random models and an SAE, saved once and loaded as real ones are.

Torch and transformers are imported by the fixtures that need them: most tests do without.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
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

WHOLE_RUN = "tests/workflow/"
"""Its tests share one run of the whole pipeline, so one process has them, but for the files of OWN_RUNS."""
OWN_RUNS = ("tests/workflow/test_fresh_runs.py", "tests/workflow/test_neuronpedia.py")

LONG = (
    WHOLE_RUN,
    "tests/verify/test_verify.py",
    "tests/server/test_watchdog.py",
    "tests/cli/test_labels_show.py",
    "tests/server/test_real_engine.py",
    "tests/server/test_soak.py",
    "tests/server/test_first_start.py",
    "tests/sources/test_index_sources.py",
    "tests/neuronpedia/test_import.py",
)
"""What takes longest, longest first: begun late, one of these would be all that the end of the run waits for."""


class ByFile(LoadScopeScheduling):
    """Tests of one file share its fixtures, so one process runs them."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return WHOLE_RUN if file.startswith(WHOLE_RUN) and file not in OWN_RUNS else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """One process more than there are processors: many tests wait for a server or another program."""
    return (yield) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {start: place for place, start in enumerate(LONG)}
    items.sort(
        key=lambda item: next((n for start, n in places.items() if item.nodeid.startswith(start)), len(LONG))
    )


@pytest.fixture
def hangups() -> Iterator[None]:
    """SIGHUP as a login leaves it, for this test and what it starts: under nohup all would ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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
