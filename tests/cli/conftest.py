"""A hub with the default pairing's files, and a machine whose command line talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import small_results
from fakes.hub import FakeHub
from fakes.hub_machine import MODEL, WEIGHTS, Machine


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add("google/gemma-2-2b-it", MODEL)
        release = {
            f"layer_{layer}/width_{width}/average_l0_{l0}/params.npz": WEIGHTS
            for layer, width, l0 in ((20, "16k", 71), (20, "16k", 139), (20, "65k", 61), (9, "16k", 73))
        }
        hub.add("google/gemma-scope-2b-pt-res", {**release, "README.md": b"# Gemma Scope"})
        yield hub


@pytest.fixture
def machine(hub: FakeHub, tmp_path: Path) -> Machine:
    return Machine(tmp_path, hub)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a pairing that has no results yet."""
    made = small_results.make_folder(tmp_path / "a folder")
    monkeypatch.chdir(made)
    monkeypatch.setenv("NEUROSCOPE_PAIRING", small_results.PAIRING)
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NEUROSCOPE_CONFIG", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return made


@pytest.fixture
def results(folder: Path) -> Path:
    """results.duckdb of that pairing."""
    return small_results.build_results(folder)
