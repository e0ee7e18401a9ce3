"""The garbage collector stands still for the first load alone, and is on again however that ends."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from scripted import scripted

from neuroscope import settings
from neuroscope.errors import ModelError
from neuroscope.ranking import Ranking
from neuroscope.server.loaded import Loaded
from neuroscope.server.service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    yield Service(settings.load().serve, Ranking())
    gc.unfreeze()


def test_it_is_off_while_the_first_engine_is_loaded_and_on_for_later_ones(service: Service) -> None:
    was_on: list[bool] = []

    def load(_enter_stage: Callable[[str], None]) -> Loaded:
        was_on.append(gc.isenabled())
        return scripted()

    for _ in range(2):
        service.load(load)
        was_on.append(gc.isenabled())
    assert was_on == [False, True, True, True]


def test_it_is_on_again_after_a_load_that_failed(service: Service) -> None:
    def load(_enter_stage: Callable[[str], None]) -> Loaded:
        raise ModelError("no model")

    with pytest.raises(ModelError):
        service.load(load)
    assert gc.isenabled()
