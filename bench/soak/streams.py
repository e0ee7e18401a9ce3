"""A thousand subscribers, fifty of whom never read, and what they cost the model's speed."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from serving import Server, wait_until

from bench.soak.report import Figure, at_least, at_most, exactly, reported
from bench.soak.server import Crowd, census, soaked

TOKENS_PER_SECOND = 10
LONGEST_ANSWER = 100
SLOWEST_MS = 500
LEAST_SPEED = 0.95
BURST = "w " * 200
"""Some 200 kB of events, as fast as they can be made."""
MOST_BURSTS = 100
SETTLING_S = 0.2
"""For what was said last to be written to everyone: events may come a moment after the answer."""
WORK = "[work=80] "
"""Some 15 ms of arithmetic a token: a fast model's speed, and slowed by whatever takes the processor."""
SETTINGS = (
    "",
    *(f"?top_k={n}" for n in (1, 2, 3)),
    *(f"?filter={name}" for name in ("none", "surprise", "combined")),
    "?threshold=0.9",
    "?min_activation=2",
    "?features=4,5,6,7",
)
"""Ten different ones. None aligns with the producer, whose events carry no clock."""


def run(*, clients: int, stuck: int, seconds: float, queries: tuple[str, ...] = ("",)) -> list[Figure]:
    """Every event to everyone, in time."""
    answers = max(1, round(seconds * TOKENS_PER_SECOND / LONGEST_ANSWER))
    tokens = round(seconds * TOKENS_PER_SECOND / answers) - 1  # and the end of the turn
    with soaked() as server, Crowd(server, stuck=stuck):
        fill(server, stuck)
        before = unsent(server)
        with Crowd(server, clients - stuck, answers=answers, seconds=seconds + 120, queries=queries) as crowd:
            started, first = time.monotonic(), census(server)
            for _ in range(answers):
                speak(server, f"[delay={1 / TOKENS_PER_SECOND}] " + "w " * tokens)
            took = time.monotonic() - started
            spent = {name: value - first[name] for name, value in census(server).items()}
            blocked = sum(unsent(server).get(port) == bytes_ for port, bytes_ in before.items())
            seen = crowd.result()
    promised = (clients - stuck) * answers * (tokens + 1)
    return [
        exactly("delivered", f"events to {clients - stuck:,} readers", promised, seen["events"], ""),
        exactly("gaps", "gaps among them", 0, seen["gaps"], ""),
        at_most("p99_ms", "99% of them within", SLOWEST_MS, seen["p99_ms"], "ms"),
        reported("p50_ms", "half of them within", seen["p50_ms"], "ms"),
        reported("max_ms", "the slowest", seen["max_ms"], "ms"),
        exactly(
            "rankings",
            f"rankings of {answers * (tokens + 1):,} tokens for {len(queries)} settings",
            answers * (tokens + 1) * len(queries),
            spent["rankings"],
            "",
        ),
        exactly("stuck", "clients that read nothing, with full buffers throughout", stuck, blocked, ""),
        reported("connected_s", f"{clients - stuck:,} connected within", crowd.connected_s, "s"),
        reported("server_cores", "processor of the server", round(spent["cpu_ms"] / took / 1000, 2), "cores"),
    ]


def speak(server: Server, content: str, **more: Any) -> int:
    """One whole answer; its number of tokens."""
    answer = server.chat(content, **more)
    if answer.status_code != 200:
        raise SystemExit(f"A chat request got {answer.status_code}: {answer.text[:300]}")
    return int(answer.json()["usage"]["completion_tokens"])


def fill(server: Server, silent: int) -> None:
    """Speak until the kernel takes nothing more for the `silent` clients, who read nothing or little."""
    wait_until(lambda: server.get("/readyz").json()["subscribers"] == silent, what="the silent clients")
    held = -1.0
    for _ in range(MOST_BURSTS):
        speak(server, BURST)
        time.sleep(SETTLING_S)
        waiting = unsent(server)
        if len(waiting) == silent and sum(waiting.values()) <= held * 1.01:
            return
        held = sum(waiting.values())
    raise SystemExit(
        f"After {MOST_BURSTS} long answers {silent} clients who read nothing were still sent more."
    )


def unsent(server: Server) -> dict[int, int]:
    """Bytes that wait in the kernel for each client of the features port which has not read them all."""
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues, *_ = line.split()
        if state == "01" and int(local.rpartition(":")[2], 16) == server.features_port:
            waiting = int(queues.partition(":")[0], 16)
            if waiting:
                found[int(remote.rpartition(":")[2], 16)] = waiting
    return found


def slowing(*, rounds: int, seconds: float, stuck: int, slow: int, gone: int) -> list[Figure]:
    """Tokens/s of a server with nobody there, and of one with slow, stuck and dead clients, by turns."""
    ratios, alone, together = [], [], []
    with soaked() as quiet, soaked() as crowded, Crowd(crowded, stuck=stuck, slow=slow):
        with Crowd(crowded, gone) as dead:
            dead.leave()
        fill(crowded, stuck + slow)
        for server in (quiet, crowded):
            speed(server, 0.5)
        for _ in range(rounds):
            alone.append(speed(quiet, seconds))
            together.append(speed(crowded, seconds))
            ratios.append(together[-1] / alone[-1])
        left = int(crowded.get("/readyz").json()["subscribers"])
    return [
        at_least(
            "speed_kept",
            f"tokens/s with {stuck} stuck, {slow} slow and {gone} vanished clients, of those with none",
            LEAST_SPEED,
            round(statistics.median(ratios), 3),
            "",
        ),
        exactly("there", "stuck and slow clients still there at the end", stuck + slow, left, ""),
        reported("alone", "tokens/s with none", round(statistics.median(alone), 1), "tokens/s"),
        reported("together", "tokens/s with them", round(statistics.median(together), 1), "tokens/s"),
    ]


def speed(server: Server, seconds: float) -> float:
    """Tokens a second over about `seconds`."""
    tokens, started = 0, time.monotonic()
    while (took := time.monotonic() - started) < seconds or not tokens:
        tokens += speak(server, WORK + "w " * 24)
    return tokens / took


def is_cached() -> bool:
    """Whether the real pairing can be loaded from this machine alone."""
    from neuroscope import settings
    from neuroscope.sources import cached

    return cached(settings.load("smollm2-135m").pairing.model).path is not None


def real(*, crowds: tuple[int, ...], seconds: float) -> list[Figure]:
    """The embedded model's speed before crowds of different sizes."""
    figures = []
    with soaked(real=True) as server:
        question = "Tell me about the history of Paris, at length."
        speak(server, question, max_tokens=8, temperature=0)
        for count in crowds:
            figures += watched(server, question, count, seconds)
    return figures


def watched(server: Server, question: str, count: int, seconds: float) -> list[Figure]:
    with Crowd(server, count, seconds=seconds + 300) as crowd:
        tokens, started = 0, time.monotonic()
        while (took := time.monotonic() - started) < seconds:
            tokens += speak(server, question, max_tokens=32, temperature=0)
        seen = crowd.dismiss() if count else None
    figures = [
        reported(f"tokens_{count}", f"with {count:,} subscribers", round(tokens / took, 1), "tokens/s")
    ]
    if seen is not None:
        figures.append(
            reported(f"p99_ms_{count}", f"99% of events to {count:,} within", seen["p99_ms"], "ms")
        )
    return figures
