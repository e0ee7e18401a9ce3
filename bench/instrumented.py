"""One answer of which every other token goes through the instrument, and what a token costs with it and without.

The server's own service with its queue, stream and features port, which one subscriber in another process follows over
a socket. A token with the instrument goes through the SAE, the ranking and the JSON of its event; of one without it
nobody reads the residual, and nothing is published. Both are of the same answer, a few tenths of a second apart: a
machine that is slower for a while is so for both.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import gevent
import numpy as np
from gevent.pywsgi import WSGIServer
from torch import Tensor

from neuroscope.engine import Engine, Sampling
from neuroscope.models.chat import Prompt
from neuroscope.ranking import Ranking
from neuroscope.sae import SparseActs
from neuroscope.sae.autoencoder import Reading
from neuroscope.sae.reading import FeatureReader
from neuroscope.server.features import create_features_app
from neuroscope.server.loaded import Load
from neuroscope.server.process import SWITCH_SECONDS
from neuroscope.server.service import Service
from neuroscope.server.stream import GeneratedToken, Published
from neuroscope.settings import Settings
from neuroscope.stats import CalibrationStats

SILENT = SparseActs(np.zeros(0, np.int32), np.zeros(0, np.float32))


def is_on(token: int) -> bool:
    """Whether the instrument is on: with, without, without, with, so that what grows with the text is in both."""
    return token % 4 in (0, 3)


def kept(seconds: Sequence[float]) -> float:
    """Share of the speed without the instrument that is kept with it, from the `seconds` of successive tokens.

    By the median of the differences within each four: one token that something else held up decides nothing.
    """
    fours = [seconds[i : i + 4] for i in range(0, len(seconds) - 3, 4)]
    without = median(second for four in fours for second in four[1:3])
    cost = median((four[0] + four[3] - four[1] - four[2]) / 2 for four in fours)
    return without / (without + cost)


class SwitchedReader:
    """The engine's reader, on for some tokens of one answer. Notes when each token comes to it.

    From then to the next token's coming lie the reading, the ranking and the event of the one, as far as they hold up
    the pass of the next: all that the instrument costs.
    """

    def __init__(self, reader: FeatureReader) -> None:
        self.reader = reader
        self.clock = reader.clock
        self.came: list[float] = []

    def read(self, residual: Tensor) -> list[Reading]:
        self.came.append(time.perf_counter())
        token = len(self.came) - 2  # the prompt's last comes first
        if token < 0 or is_on(token):
            return self.reader.read(residual)
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
    """A service with everything loaded and one subscriber. `tokens` of an answer are measured, fours of them."""

    def __init__(self, service: Service, prompt: Prompt, tokens: int) -> None:
        self.service = service
        self.engine: Engine = service.loaded.engine
        self.reader = self.engine._reader
        self.prompt = prompt
        self.tokens = tokens
        self.published = 0

    def answers(self, count: int) -> list[list[float]]:
        """Seconds of each token of so many answers, after an unmeasured one."""
        return [self._answer() for _ in range(count + 1)][1:]

    def recorded(self) -> Recorder:
        """One more answer, unmeasured, and what was found in it."""
        recorder: Any = Recorder(self.reader)
        self._run(recorder)
        self.published += self.tokens + 1
        return recorder  # type: ignore[no-any-return]

    def _answer(self) -> list[float]:
        switched: Any = SwitchedReader(self.reader)
        stream = self.service.stream
        publish = stream.publish

        def publish_some(published: Published) -> int:
            if isinstance(published, GeneratedToken) and not is_on(published.step.token_index):
                return stream.newest
            return publish(published)

        stream.publish = publish_some  # type: ignore[method-assign]
        try:
            self._run(switched)
        finally:
            stream.publish = publish  # type: ignore[method-assign]
        self.published += sum(map(is_on, range(self.tokens + 1)))
        came = switched.came[1:]
        return [late - early for early, late in pairwise(came)]

    def _run(self, reader: Any) -> None:
        """One answer, the last of whose tokens ends the time of the one before."""
        gc.collect()
        self.engine._reader = reader
        try:
            release = self.service.inference.take_place()
            sampling = Sampling(max_tokens=self.tokens + 1, temperature=0)
            generation = self.service.begin("bench-", self.prompt, sampling, release)
            count = sum(step is not None for step in generation.steps(60))
        finally:
            self.engine._reader = self.reader
        if count != self.tokens + 1:
            raise SystemExit(f"An answer of {count} tokens came where {self.tokens + 1} were wanted.")


@contextmanager
def instrumented(settings: Settings, load: Load, asked: Any, tokens: int) -> Iterator[Instrumented]:
    """Loaded, followed, and at the end checked to have reached its subscriber. `tokens`: a multiple of four."""
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
