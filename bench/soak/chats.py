"""Two hundred chat requests at once before a queue of 32: each is served or refused soon, and none hangs."""

from __future__ import annotations

from typing import Any

from bench.soak.report import Figure, at_most, exactly, reported
from bench.soak.server import CHAT, Answer, all_at_once, question, request_bytes, soaked

QUEUE = 32
SLOWEST_REFUSAL_MS = 100
REFUSALS = {429, 503}


def storm(port: int, count: int, tokens: int) -> list[Answer | None]:
    """`count` questions sent at once, each with an answer of its own; None for one that got nothing in time."""
    return all_at_once(
        port, [request_bytes("POST", CHAT, question(words(n, tokens)), keep=True) for n in range(count)]
    )


def words(number: int, tokens: int) -> str:
    return "[delay=0.01] " + " ".join(f"answer{number}" for _ in range(tokens))


def is_right(answer: Answer, number: int, tokens: int) -> bool:
    content = answer.json["choices"][0]["message"]["content"]
    return bool(content.split() == [f"answer{number}"] * tokens)


def run(*, count: int, rounds: int, tokens: int = 5, **serve: Any) -> list[Figure]:
    with soaked(queue=QUEUE, **serve) as server:
        found = []
        for _ in range(rounds):
            server.wait_idle()
            found.append(storm(server.port, count, tokens))
    every = [(n, answer) for answers in found for n, answer in enumerate(answers)]
    served = [(n, a) for n, a in every if a is not None and a.status == 200]
    refused = [a for _, a in every if a is not None and a.status in REFUSALS]
    late = sorted(a.seconds * 1000 for a in refused)
    wrong = sum(not is_right(a, n, tokens) for n, a in served)
    hung = len(every) - len(served) - len(refused)
    wordless = sum("retry-after" not in a.headers for a in refused)
    slowest = round(late[-1], 1) if late else None
    return [
        exactly("hung", f"of {len(every):,} requests, neither served nor refused", 0, hung, ""),
        reported("served", f"served, in {rounds} rounds of {count}", len(served), ""),
        reported("refused", "refused", len(refused), ""),
        exactly("wrong", "served with another's answer", 0, wrong, ""),
        exactly("no_retry_after", "refused without Retry-After", 0, wordless, ""),
        at_most(
            "refusal_ms", "slowest refusal, from the request's sending", SLOWEST_REFUSAL_MS, slowest, "ms"
        ),
        reported("refusal_p50_ms", "median refusal", round(late[len(late) // 2], 1) if late else None, "ms"),
    ]
