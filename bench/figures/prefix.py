"""Time to the first token of a chat's tenth turn, with and without the beginnings of prompts that were kept.

Another chat takes turns with it, so nothing is left of it in the model's own cache. Two engines on one model run the
same prompts in alternation. In every round the last answer begins otherwise, so that it and the last question are as
new to the store as they are in a chat.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import neuroscope
from bench.figure import Figure, Spread, ratio
from neuroscope.engine import PREFILL_CELL, Engine, Sampling
from neuroscope.models.chat import Prompt
from neuroscope.models.torch_backend import TorchBackend

Messages = list[dict[str, Any]]

PAIRING = "smollm2-135m"
TURNS = 10
ANSWER = 100
"""Tokens of an answer, at most."""

CITIES = ["Paris", "Rome", "Cairo", "Lima", "Oslo", "Delhi", "Tokyo", "Quito", "Sofia", "Accra"]
FOODS = ["bread", "cheese", "soup", "rice", "noodles", "beans", "fish", "eggs", "pie", "tea"]
LAST = ["food", "music", "rivers", "streets", "weather", "history", "schools", "parks", "trains", "markets"]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def question(about: str) -> dict[str, Any]:
    return user(
        f"Now I would like to know more about {about}. What should somebody who has never had to do with it know "
        "first, and why? Give me a few sentences, please, and one example."
    )


def answer(engine: Engine, talk: Messages, max_tokens: int) -> dict[str, Any]:
    """The model's next turn."""
    steps = engine.generate(engine.prepare(talk), Sampling(max_tokens=max_tokens, temperature=0.7, seed=1))
    return {"role": "assistant", "content": "".join(step.text for step in steps)}


def seconds_to_first(engine: Engine, prompt: Prompt) -> float:
    began = time.perf_counter()
    steps = engine.generate(prompt, Sampling(max_tokens=2, temperature=0))
    next(steps)
    return time.perf_counter() - began


def seconds_of_copies(engine: Engine, ids: Sequence[int]) -> tuple[float, float]:
    """Medians of running one cell, and of copying it out and back in."""
    backend = engine.backend
    ran, copied = [], []
    for _ in range(9):
        backend.rewind(0)
        began = time.perf_counter()
        backend.forward(ids)
        ran.append(time.perf_counter() - began)
        began = time.perf_counter()
        saved = backend.take(0, len(ids))
        backend.rewind(0)
        assert saved is not None
        backend.restore([saved])
        copied.append(time.perf_counter() - began)
    return median(ran), median(copied)


def measure(rounds: int) -> list[Figure]:
    loaded = neuroscope.load(PAIRING).engine
    assert isinstance(loaded.backend, TorchBackend)
    model, tokenizer, layer = loaded.backend.model, loaded.backend.tokenizer, loaded.backend.layer
    reusing, whole = (
        Engine(TorchBackend(model, tokenizer, layer), loaded.sae, loaded.chat, prefix_cache_mb=megabytes)
        for megabytes in (512, 0)
    )
    talk: Messages = []
    other: Messages = []
    for city, food in list(zip(CITIES, FOODS, strict=True))[: TURNS - 1]:
        talk.append(question(city))
        talk.append(answer(reusing, talk, ANSWER))
        other += [question(food), talk[-1]]  # what the other one answers does not matter here
        seconds_to_first(reusing, reusing.prepare([*other, question(food)]))
    pairs: list[tuple[float, float]] = []
    ran: list[int] = []
    for about in LAST[:rounds]:
        said = {"role": "assistant", "content": f"About {about}: {talk[-1]['content']}"}
        prompt = reusing.prepare([*talk[:-1], said, question(about)])
        seconds_to_first(reusing, reusing.prepare([*other, question(about)]))
        with_reuse = seconds_to_first(reusing, prompt)
        ran.append(len(prompt.ids) - reusing.reused_tokens)
        pairs.append((seconds_to_first(whole, prompt), with_reuse))
    one, copies = seconds_of_copies(whole, prompt.ids[:PREFILL_CELL])
    return [
        Figure(
            "first-token-tenth-turn",
            "time to the first token, tenth turn of a chat",
            "the same without prefix reuse",
            ratio(pairs),
            "x",
            at_least=5,
            details={
                "prompt_tokens": len(prompt.ids),
                "run_with_reuse_tokens": median(ran),
                "without_s": round(median(one for one, _ in pairs), 2),
                "with_reuse_s": round(median(other for _, other in pairs), 2),
                "kept_mb_both_chats": round(reusing.prefix.used / 1e6),
            },
        ),
        Figure(
            "cell-copied",
            "one cell of 64 tokens, copied out and in",
            "the same, run",
            Spread.of([one / copies]),
            "x",
            details={"run_ms": round(one * 1e3, 1), "copied_ms": round(copies * 1e3, 1)},
        ),
    ]
