"""Decoding, one token after another, against `generate` of transformers on the same weights in float32.

Timed is a greedy answer of 64 tokens to a prompt of 64, from its first token to its last, so the prompt's own pass is
in neither. Ours is the whole loop of the engine: forward pass, sampling, SAE with `fvu`, text. `generate` runs with the
model's own cache and hands each token to a streamer. Both are to give the same ids in float32.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import neuroscope
from bench.figure import Figure, ratio
from neuroscope.engine import Engine, Sampling
from neuroscope.models.token_ids import TokenIds
from neuroscope.models.torch_backend import TorchBackend

PAIRING = "smollm2-135m"
PROMPT = 64
ANSWER = 64
TEXT = (
    "The history of the city begins with a small settlement on an island in the river. Merchants came up the river "
    "from the sea, and on the island they found water, wood and a market. In the second century a wall was built, and "
    "with the wall came soldiers, and with the soldiers came roads. The oldest of these roads leads to the south, and"
)


class Arrivals:
    """A streamer of `generate`: when tokens came. The first call brings the prompt."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        if value.dim() == 1:
            self.times.append(time.perf_counter())
            self.ids += value.tolist()

    def end(self) -> None:
        pass


def prompt_of(engine: Engine) -> list[int]:
    ids = engine.prepare(TEXT).ids[:PROMPT]
    assert len(ids) == PROMPT
    return list(ids)


def engine_decodes(engine: Engine) -> tuple[float, list[int]]:
    """Seconds from the first token of an answer to the last, and its ids."""
    prompt = engine.prepare(TokenIds(tuple(prompt_of(engine))))
    ids, times = [], []
    for step in engine.generate(prompt, Sampling(max_tokens=ANSWER, temperature=0)):
        times.append(time.perf_counter())
        ids.append(step.token_id)
    assert len(ids) == ANSWER, "the answer ended early"
    return times[-1] - times[0], ids


def generate_decodes(model: Any, prompt: list[int]) -> tuple[float, list[int]]:
    """The same of transformers' `generate`."""
    arrivals = Arrivals()
    row = torch.tensor([prompt])
    with torch.inference_mode():
        model.generate(
            row,
            attention_mask=torch.ones_like(row),
            do_sample=False,
            min_new_tokens=ANSWER,
            max_new_tokens=ANSWER,
            streamer=arrivals,
        )
    assert len(arrivals.ids) == ANSWER
    return arrivals.times[-1] - arrivals.times[0], arrivals.ids


def against_generate(
    name: str, what: str, ours: Engine, model: Any, rounds: int, *, at_least: float, same_ids: bool = False
) -> Figure:
    """`ours` and `generate` of `model`, in turns."""
    prompt = prompt_of(ours)
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        if number % 2:
            theirs, expected = generate_decodes(model, prompt)
            own, ids = engine_decodes(ours)
        else:
            own, ids = engine_decodes(ours)
            theirs, expected = generate_decodes(model, prompt)
        if same_ids:
            assert ids == expected, "the engine and generate give different answers"
        if number:  # the first round warms both up
            pairs.append((theirs, own))
    rates = [sorted((ANSWER - 1) / pair[side] for pair in pairs)[len(pairs) // 2] for side in (0, 1)]
    shared = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=True)) if a != b), ANSWER)
    assert isinstance(ours.backend, TorchBackend)
    return Figure(
        name,
        what,
        "`generate` of transformers, float32",
        ratio(pairs),
        "x",
        at_least=at_least,
        details={
            "tokens_per_s": round(rates[1], 1),
            "generate_tokens_per_s": round(rates[0], 1),
            "threads": torch.get_num_threads(),
            "same_ids_at_first": shared,
        },
        note=f"The engine's whole loop with the SAE, {ANSWER} tokens after {PROMPT}; {ours.backend.decode}.",
    )


def load(dtype: str) -> Engine:
    return neuroscope.load(PAIRING, overrides={"dtype": dtype, "device": "cpu"}).engine


def measure(rounds: int) -> list[Figure]:
    plain = load("float32")
    assert isinstance(plain.backend, TorchBackend)
    model = plain.backend.model
    return [
        against_generate(
            "decode-float32",
            "decoding with the SAE, float32",
            plain,
            model,
            rounds,
            at_least=1.5,
            same_ids=True,
        ),
        against_generate(
            "decode-bfloat16",
            "decoding with the SAE, bfloat16 weights",
            load("bfloat16"),
            model,
            rounds,
            at_least=2.2,
        ),
    ]
