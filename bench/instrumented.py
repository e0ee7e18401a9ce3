"""The same answer with the instrument and without it, in one process and in turns.

With it: the server's own service with its queue, stream and features port, which one subscriber in another process
follows over a socket; every token goes through the SAE, the ranking and the JSON of its event. Without it: the same
engine in the same thread, whose residuals nobody reads; its tokens are counted where they are made. Both run the same
model, sampler and text.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gevent
import numpy as np
from gevent.pywsgi import WSGIServer
from torch import Tensor

from neuroscope.engine import Engine, Sampling
from neuroscope.models.chat import Prompt
from neuroscope.ranking import Ranking
from neuroscope.sae import SparseActs
from neuroscope.sae.reading import Clock, FeatureReader, Reading
from neuroscope.server.features import create_features_app
from neuroscope.server.loaded import Load
from neuroscope.server.process import SWITCH_SECONDS
from neuroscope.server.service import Service
from neuroscope.settings import Settings
from neuroscope.stats import CalibrationStats

SILENT = SparseActs(np.zeros(0, np.int32), np.zeros(0, np.float32))


class NoReader:
    """The instrument, off."""

    def __init__(self) -> None:
        self.clock = Clock()

    def read(self, residual: Tensor) -> list[Reading]:
        return [Reading(SILENT, None)] * len(residual)


class Recorder:
    """Keeps what a reader found, and in what."""

    def __init__(self, reader: FeatureReader) -> None:
        self.reader = reader
        self.clock = reader.clock
        self.rows: list[tuple[Tensor, SparseActs]] = []
        self.candidates: list[int] = []

    def read(self, residual: Tensor) -> list[Reading]:
        readings = self.reader.read(residual)
        self.rows.append((residual[-1].clone(), readings[-1].acts))
        if self.reader.screen is not None:
            self.candidates.append(self.reader.screen.candidates)
        return readings


class Instrumented:
    """A service with everything loaded and one subscriber, and the two ways to make one answer."""

    def __init__(self, service: Service, prompt: Prompt, tokens: int) -> None:
        self.service = service
        self.engine: Engine = service.loaded.engine
        self.reader = self.engine._reader
        self.prompt = prompt
        self.sampling = Sampling(max_tokens=tokens, temperature=0)
        self.tokens = tokens
        self.published = 0

    def with_it(self) -> float:
        """Seconds a token, from the first to the last."""
        release = self.service.inference.take_place()
        generation = self.service.begin("bench-", self.prompt, self.sampling, release)
        took = self._timed(step for step in generation.steps(60) if step is not None)
        self.published += self.tokens
        return took

    def without(self) -> float:
        return self.service.model_thread.call(self._without)

    def pairs(self, rounds: int) -> list[tuple[float, float]]:
        """Seconds a token (without, with) in turns, after one unmeasured run of each."""
        self.without(), self.with_it()
        pairs = []
        for number in range(rounds):
            if number % 2:
                late = self.with_it()
                pairs.append((self.without(), late))
            else:
                early = self.without()
                pairs.append((early, self.with_it()))
        return pairs

    def recorded(self) -> Recorder:
        """One more answer, unmeasured, and what was found in it."""
        recorder: Any = Recorder(self.reader)
        self.engine._reader = recorder
        self.with_it()
        self.engine._reader = self.reader
        return recorder  # type: ignore[no-any-return]

    def _without(self) -> float:
        off: Any = NoReader()
        self.engine._reader = off
        try:
            return self._timed(self.engine.generate(self.prompt, self.sampling))
        finally:
            self.engine._reader = self.reader

    def _timed(self, steps: Iterable[object]) -> float:
        gc.collect()
        times = [time.perf_counter() for _ in steps]
        if len(times) != self.tokens:
            raise SystemExit(f"An answer of {len(times)} tokens came where {self.tokens} were wanted.")
        return (times[-1] - times[0]) / (self.tokens - 1)


@contextmanager
def instrumented(settings: Settings, load: Load, asked: Any, tokens: int) -> Iterator[Instrumented]:
    """Loaded, followed, and at the end checked to have reached its subscriber."""
    sys.setswitchinterval(SWITCH_SECONDS)  # as the server's process does
    chosen = settings.ranking
    service = Service(settings.serve, Ranking(chosen.filter, chosen.threshold, chosen.top_k))
    loaded = service.load(load)
    width = loaded.width
    service._use(
        replace(loaded, labels=tuple(LABEL.format(i) for i in range(width)), stats=made_up_stats(width))
    )
    server = WSGIServer(("127.0.0.1", 0), create_features_app(service, chat_port=8080), log=None)
    server.start()
    command = [sys.executable, "-m", "bench.subscriber", str(server.server_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as subscriber:
        assert subscriber.stdout is not None
        try:
            while not len(service.subscribers):
                gevent.sleep(0.01)
            sides = Instrumented(service, service.prepare(asked), tokens)
            yield sides
            service.stop(60)
            gevent.sleep(0.5)
            server.stop(5)
            said = subscriber.stdout.read().split()
        finally:
            subscriber.kill()
    if said != ["connected", str(sides.published)]:
        raise SystemExit(f"The subscriber says {said}; {sides.published} tokens were published.")


LABEL = "about the names of cities and countries, {}"


def made_up_stats(width: int) -> CalibrationStats:
    """Statistics of every feature, so that ranking does all its work."""
    fired = np.full(width, 1000)
    ones = np.ones(width)
    return CalibrationStats(100_000, fired, ones, ones, 0.01 * ones, 0.1 * ones, 9 * ones)
