"""Two hundred chat requests at once before a queue of 32: each is served or refused soon, and none hangs.

How soon is a matter of the processor, so gunicorn's worker with nothing in it gets the same requests, in turns.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.soak.bare import bare_server
from bench.soak.report import Figure, at_most, exactly, reported
from bench.soak.server import CHAT, Answer, all_at_once, question, request_bytes, soaked

QUEUE = 32
TIMES_BARE = 2
"""The slowest refusal by the slowest of gunicorn alone."""
REFUSALS = {429, 503}


def storm(port: int, count: int, tokens: int) -> list[Answer | None]:
    """`count` questions sent at once, each with an answer of its own; None for one that got nothing in time."""
    return all_at_once(
        port, [request_bytes("POST", CHAT, question(words(n, tokens)), keep=True) for n in range(count)]
    )


def words(number: int, tokens: int) -> str:
    return "[delay=0.01] " + " ".join(f"answer{number}" for _ in range(tokens))


def slowest_ms(answers: list[Answer | None]) -> float:
    """Of those refused."""
    return max((a.seconds * 1000 for a in answers if a is not None and a.status in REFUSALS), default=0.0)


def is_right(answer: Answer, number: int, tokens: int) -> bool:
    content = answer.json["choices"][0]["message"]["content"]
    return bool(content.split() == [f"answer{number}"] * tokens)


def run(*, count: int, rounds: int, tokens: int = 5, **serve: Any) -> list[Figure]:
    with soaked(queue=QUEUE, **serve) as server, bare_server() as bare:
        found, alone = [], []
        for _ in range(rounds):
            server.wait_idle()
            found.append(storm(server.port, count, tokens))
            server.wait_idle()
            alone.append(storm(bare, count, tokens))
    every = [(n, answer) for answers in found for n, answer in enumerate(answers)]
    served = [(n, a) for n, a in every if a is not None and a.status == 200]
    refused = [a for _, a in every if a is not None and a.status in REFUSALS]
    late = sorted(a.seconds * 1000 for a in refused)
    wrong = sum(not is_right(a, n, tokens) for n, a in served)
    hung = len(every) - len(served) - len(refused)
    wordless = sum("retry-after" not in a.headers for a in refused)
    slowest = round(median(map(slowest_ms, found)), 1)
    bare_slowest = round(median(map(slowest_ms, alone)), 1)
    return [
        exactly("hung", f"of {len(every):,} requests, neither served nor refused", 0, hung, ""),
        reported("served", f"served, in {rounds} rounds of {count}", len(served), ""),
        reported("refused", "refused", len(refused), ""),
        exactly("wrong", "served with another's answer", 0, wrong, ""),
        exactly("no_retry_after", "refused without Retry-After", 0, wordless, ""),
        reported("refusal_ms", "slowest refusal of a round, from the request's sending", slowest, "ms"),
        at_most(
            "refusal_ratio",
            "the same, by the slowest answer of gunicorn's worker with nothing in it",
            TIMES_BARE,
            round(slowest / bare_slowest, 2) if bare_slowest else None,
            "x",
        ),
        reported("refusal_p50_ms", "median refusal", round(late[len(late) // 2], 1) if late else None, "ms"),
    ]
