"""The server that is soaked: the product's own, around an engine that writes the time into every event.

`fvu` of an event is the monotonic clock of its token's leaving the engine, which every process of the machine
shares; a reader takes its own clock from it. `/soak/census` counts what must not grow. Neither is in the product.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import greenlet
import numpy as np
from scripted import Acts, Script, ScriptedEngine, scripted

from neuroscope import settings
from neuroscope.server import views
from neuroscope.server.loaded import Load, Loaded
from neuroscope.server.loading import loader
from neuroscope.server.process import start

REAL = os.environ.get("SOAK_REAL_MODEL") == "1"
LABEL_WORDS = "about the names of cities and countries"
"""Makes an event of ten features as long as a real one, 1 kB."""
EIGHTS = np.arange(5, 13, dtype=np.int32)
WORK_SIDE = 192


class SoakEngine(ScriptedEngine):
    """As the scripted one, and: [work=N] multiplies N matrices before each token; a conversation can be encoded."""

    def __init__(self) -> None:
        super().__init__()
        self._matrix = np.full((WORK_SIDE, WORK_SIDE), 0.5, np.float32)

    def render(self, messages: list[dict[str, Any]], *, generation: bool = True) -> Script:
        return self.prepare(messages)

    def _generate(self, script: Script, *arguments: Any) -> Iterator[Any]:
        work = int(script.options.get("work", 0))
        for step in super()._generate(script, *arguments):
            for _ in range(work):
                _ = self._matrix @ self._matrix
            yield step


@dataclass
class Clocked:
    """An engine whose steps carry the time at which they left it."""

    engine: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def generate(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        return self._clocked(self.engine.generate(*arguments, **options))

    def _clocked(self, steps: Iterator[Any]) -> Iterator[Any]:
        for step in steps:
            more = {} if REAL else {"acts": _many(step.acts)}
            yield replace(step, fvu=time.monotonic(), **more)


def _many(acts: Acts) -> Acts:
    """Eight features more, so that ten are shown."""
    return Acts(np.concatenate([acts.indices, EIGHTS + 8]), np.concatenate([acts.values, EIGHTS / 4.0]))


def load(settled: settings.Settings) -> Load:
    def loads(enter_stage: Callable[[str], None]) -> Loaded:
        if REAL:
            loaded = loader(settled)(enter_stage)
            return replace(loaded, engine=Clocked(loaded.engine))
        loaded = scripted()
        labels = tuple(f"{label} {LABEL_WORDS}" for label in loaded.labels)
        return replace(loaded, engine=Clocked(SoakEngine()), labels=labels)

    return loads


rankings: Counter[str] = Counter()


def counted(select: Callable[..., Any]) -> Callable[..., Any]:
    """Counts how often a token's features are ranked."""

    def count(*arguments: Any) -> Any:
        rankings["of a token"] += 1
        return select(*arguments)

    return count


def census() -> dict[str, int]:
    """What a leak would show in, after everything that can be collected has been; and work done so far."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "greenlets": sum(isinstance(o, greenlet.greenlet) and not o.dead for o in gc.get_objects()),
        "threads": int(status.partition("Threads:")[2].split()[0]),
        "rss_kb": int(status.partition("VmRSS:")[2].split()[0]),
        "cpu_ms": int(time.process_time() * 1000),
        "rankings": rankings.total(),
    }


def with_census(application: Any) -> Any:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ.get("PATH_INFO") != "/soak/census":
            return application(environ, start_response)
        body = json.dumps(census()).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return answer


def __getattr__(name: str) -> Any:
    if name != "application":
        raise AttributeError(name)
    views.select = counted(views.select)
    return with_census(start(settings.load, load))
