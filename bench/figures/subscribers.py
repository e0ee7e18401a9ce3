"""What a thousand subscribers of the features stream, in ten different settings, cost the model's speed.

One server process with the real model, one process of subscribers that reads, counts and keeps the time, both on the
same two cores. Crowds of 1, 100 and 1,000 come and go in turns; each hears the same answer. The processor's time of
the server beyond what it takes for one subscriber does not depend on how busy the machine is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import psutil
from serving import Server, wait_until

from bench.figure import Figure, Spread
from bench.soak.limits import raise_open_files
from bench.soak.server import PATIENCE_S, Crowd, soaked
from bench.soak.streams import SETTINGS, speak

CORES = 2
CROWDS = (1, 100, 1000)
TOKENS = 64
LAST_S = 0.5
"""After the answer's last token, for its event to reach everyone."""
QUESTION = "Tell me about the history of Paris, at length."


@dataclass(frozen=True)
class Heard:
    """One answer before one crowd; milliseconds a token."""

    ms: float
    server_ms: float
    readers_ms: float
    p99_ms: float


def processor_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def hear(server: Server, count: int) -> Heard:
    """One answer. What comes and goes before and after it is not measured."""
    wait_until(lambda: server.get("/readyz").json()["subscribers"] == 0, what="an empty stream")
    with Crowd(server, count, seconds=5 * PATIENCE_S, queries=SETTINGS) as crowd:
        readers = psutil.Process(crowd.process.pid)
        (worker,) = psutil.Process(server.process.pid).children()
        before = processor_s(worker), processor_s(readers)
        began = time.perf_counter()
        tokens = speak(server, QUESTION, max_tokens=TOKENS, temperature=0)
        took = time.perf_counter() - began
        time.sleep(LAST_S)
        spent = processor_s(worker) - before[0], processor_s(readers) - before[1]
        seen = crowd.dismiss()
    if seen["gaps"] or seen["fewest"] < tokens:
        raise SystemExit(f"Of {count} subscribers some did not hear every event: {seen}")
    return Heard(took / tokens * 1e3, spent[0] / tokens * 1e3, spent[1] / tokens * 1e3, seen["p99_ms"])


def middle(heard: Sequence[Heard], name: str) -> float:
    return round(median(getattr(one, name) for one in heard), 1)


def figure(count: int, heard: Sequence[Heard], alone: Sequence[Heard], at_most: float | None) -> Figure:
    more = median(one.server_ms - other.server_ms for one, other in zip(heard, alone, strict=True))
    return Figure(
        f"subscribers-{count}",
        f"time per token with {count:,} subscribers in {len(SETTINGS)} settings",
        "one subscriber, the same server",
        Spread.of([one.ms / other.ms for one, other in zip(heard, alone, strict=True)]),
        "x",
        at_most=at_most,
        details={
            "tokens_per_s": round(1e3 / median(one.ms for one in heard), 1),
            "alone_tokens_per_s": round(1e3 / median(one.ms for one in alone), 1),
            "server_ms_a_token": middle(heard, "server_ms"),
            "alone_server_ms_a_token": middle(alone, "server_ms"),
            "server_ms_more_a_token": round(more, 1),
            "readers_ms_a_token": middle(heard, "readers_ms"),
            "p99_ms": middle(heard, "p99_ms"),
        },
        note="The subscribers' own process runs on the same two cores.",
    )


def measure(rounds: int) -> list[Figure]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # and of all it starts
    raise_open_files(max(CROWDS))
    heard: dict[int, list[Heard]] = {count: [] for count in CROWDS}
    with soaked(real=True) as server:
        speak(server, QUESTION, max_tokens=8, temperature=0)
        for number in range(rounds):
            for count in CROWDS if number % 2 else reversed(CROWDS):
                heard[count].append(hear(server, count))
    alone = heard[1]
    return [figure(1000, heard[1000], alone, 1.5), figure(100, heard[100], alone, None)]
