"""A place in the queue, then the prompt: what becomes of both when the client leaves meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
import pytest
from scripted import scripted

from neuroscope import settings
from neuroscope.models.sampling_options import Sampling
from neuroscope.ranking import Ranking
from neuroscope.server.problems import Problem
from neuroscope.server.service import Service


class Client:
    """Watched as a connection is; leaves when it is told to."""

    def __init__(self) -> None:
        self.gone = False
        self.on_gone: Callable[[], None] = lambda: None

    def watch(self, on_gone: Callable[[], None]) -> Any:
        self.on_gone = on_gone
        return self

    def leave(self) -> None:
        self.gone = True
        self.on_gone()

    def stop(self) -> None:
        self.on_gone = lambda: None


@pytest.fixture
def service() -> Service:
    service = Service(settings.load().serve, Ranking("frequency", 0.5, 10))
    service.load(lambda _enter_stage: scripted())
    return service


def free_places(service: Service) -> int:
    """Takes all that are left, and gives them back."""
    taken = []
    with suppress(Problem):
        while True:
            taken.append(service.inference.take_place())
    for give_back in taken:
        give_back()
    return len(taken)


def test_a_client_that_leaves_while_it_waits_for_its_prompt_leaves_its_place_and_the_prompt(
    service: Service,
) -> None:
    all_places = free_places(service)
    goes_on, begun = threading.Event(), []

    def slow() -> Any:
        begun.append("slow")
        goes_on.wait(60)
        return "a prompt"

    first, second = Client(), Client()
    running = gevent.spawn(service.admit, slow, first.watch)
    waiting = gevent.spawn(service.admit, lambda: begun.append("second"), second.watch)  # type: ignore[arg-type, return-value]
    with gevent.Timeout(10):
        while not begun:
            gevent.sleep(0.001)
    assert free_places(service) == all_places - 2
    second.leave()
    assert free_places(service) == all_places - 1
    goes_on.set()
    prompt, release = running.get(timeout=10)
    assert prompt == "a prompt"
    with pytest.raises(Problem, match="closed its connection"):
        waiting.get(timeout=10)
    assert begun == ["slow"]
    assert free_places(service) == all_places - 1
    release()
    assert free_places(service) == all_places


def test_a_client_that_leaves_while_its_prompt_is_made_is_not_queued(service: Service) -> None:
    all_places, client = free_places(service), Client()

    def leaves() -> Any:
        client.gone = True
        return "a prompt"

    with pytest.raises(Problem) as given_up:
        service.admit(leaves, client.watch)
    assert given_up.value.code == "cancelled"
    assert free_places(service) == all_places


def test_a_prompt_that_cannot_be_made_or_does_not_fit_gives_its_place_back(service: Service) -> None:
    all_places = free_places(service)
    with pytest.raises(ZeroDivisionError):
        service.admit(lambda: 1 // 0, Client().watch)  # type: ignore[arg-type, return-value]
    prompt, release = service.admit(lambda: service.loaded.engine.prepare("a"), Client().watch)
    with pytest.raises(Exception, match="context"):
        service.begin("t-", prompt, Sampling(max_tokens=10_000), release)
    assert free_places(service) == all_places
