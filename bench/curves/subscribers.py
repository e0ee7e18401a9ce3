"""The speed of an answer that 1, 10, 100 and 1,000 subscribers follow: the figure's server, crowds and answers."""

from __future__ import annotations

import os

from bench.curve import Curve, series
from bench.figures.subscribers import CORES, QUESTION, Heard, hear, middle
from bench.soak.limits import raise_open_files
from bench.soak.server import soaked
from bench.soak.streams import speak

CROWDS = (1, 10, 100, 1000)
ROUNDS = 3
AT_MOST = 1.5
"""Times one subscriber's time per token."""


def listen(rounds: int) -> dict[int, list[Heard]]:
    """Crowds in turns, every other time the largest first."""
    heard: dict[int, list[Heard]] = {count: [] for count in CROWDS}
    with soaked(real=True) as server:
        speak(server, QUESTION, max_tokens=8, temperature=0)
        for number in range(rounds):
            for count in reversed(CROWDS) if number % 2 else CROWDS:
                heard[count].append(hear(server, count))
    return heard


def measure(quick: bool) -> Curve:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:CORES])  # and of all it starts
    raise_open_files(max(CROWDS))
    try:
        heard = listen(1 if quick else ROUNDS)
    finally:
        os.sched_setaffinity(0, before)
    took, server, p99 = (
        [middle(heard[count], name) for count in CROWDS] for name in ("ms", "server_ms", "p99_ms")
    )
    return Curve(
        "subscribers",
        "An answer that more and more subscribers follow",
        "subscribers",
        CROWDS,
        [
            series(
                "time per token",
                "ms",
                CROWDS,
                took,
                grows=0,
                why="as for one subscriber",
                at_most=round(AT_MOST * took[0], 1),
            ),
            series(
                "the server's processor per token",
                "ms",
                CROWDS,
                server,
                grows=0,
                why="as for one subscriber",
            ),
        ],
        {
            "rounds": len(heard[1]),
            "p99_ms": p99,
            "readers_ms_a_token": [middle(heard[count], "readers_ms") for count in CROWDS],
        },
    )
