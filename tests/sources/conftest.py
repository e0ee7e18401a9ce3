"""A hub with two repositories, and a machine that talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hub import FakeHub
from fakes.hub_machine import MODEL, WEIGHTS, Machine


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add("org/model", MODEL)
        hub.add("org/sae", {"layer_20/width_16k/average_l0_71/params.npz": WEIGHTS})
        yield hub


@pytest.fixture
def machine(hub: FakeHub, tmp_path: Path) -> Machine:
    return Machine(tmp_path, hub)
