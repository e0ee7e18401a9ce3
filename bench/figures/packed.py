"""Decoding with weights of 8 and 4 bits, and the SAE beside it, against `generate` with the same model in float32.

What is promised is 3 for one of the two: int4, which is the faster. Seconds from the first token of an answer to its
last: both sides have run the prompt by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import neuroscope
from bench.figure import Figure, ratio
from neuroscope.engine import Engine, Sampling
from neuroscope.models.token_ids import TokenIds

PAIRING = "smollm2-135m"
PROMPT = 64
TOKENS = 64
TEXT = (
    "The history of the bicycle begins in the nineteenth century, when roads were poor and horses were dear. "
    * 8
)


class Clock:
    """A streamer for `generate`: when the first new token came, and the last."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _ids: Any) -> None:
        self.times.append(time.perf_counter())  # the first time for the prompt

    def end(self) -> None:
        pass

    def per_token(self) -> float:
        first, last = self.times[1], self.times[-1]
        return (last - first) / (len(self.times) - 2)


def generated(model: Any, ids: list[int]) -> float:
    """Seconds a token of transformers' own loop, greedy."""
    clock = Clock()
    model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        do_sample=False,
        streamer=clock,
        pad_token_id=0,
    )
    return clock.per_token()


def decoded(engine: Engine, ids: list[int]) -> float:
    """Seconds a token of the engine, greedy, features and all."""
    times = []
    for _ in engine.generate(
        engine.prepare(TokenIds(tuple(ids))), Sampling(max_tokens=TOKENS, temperature=0)
    ):
        times.append(time.perf_counter())
    return (times[-1] - times[0]) / (len(times) - 1)


def in_turns(one: Callable[[], float], other: Callable[[], float], rounds: int) -> list[tuple[float, float]]:
    one(), other()
    return [(one(), other()) for _ in range(rounds)]


def measure(rounds: int) -> list[Figure]:
    whole: Any = neuroscope.load(PAIRING, overrides={"quantization": "none", "device": "cpu"}).engine.backend
    ids = whole.tokenizer(TEXT).input_ids[:PROMPT]
    figures = []
    for quantization in ("int8", "int4"):
        scope = neuroscope.load(PAIRING, overrides={"quantization": quantization, "device": "cpu"})
        engine = scope.engine
        pairs = in_turns(lambda: generated(whole.model, ids), lambda e=engine: decoded(e, ids), rounds)  # type: ignore[misc]
        ms = [sorted(side)[len(pairs) // 2] * 1e3 for side in zip(*pairs, strict=True)]
        figures.append(
            Figure(
                f"decode-{quantization}",
                f"decoding with {quantization} weights, SAE included",
                "transformers' generate in float32",
                ratio(pairs),
                "x",
                at_least=3 if quantization == "int4" else None,
                details={"generate_ms": round(ms[0], 1), "decode_ms": round(ms[1], 1)},
            )
        )
    return figures
