"""Time to the first token of a chat's tenth turn, with and without the beginnings of prompts that were kept.

Another chat takes turns with it, so nothing is left of it in the model's own cache. Two engines on one model run the
same prompts in alternation. In every repetition the last answer begins otherwise, so that it and the last question are
as new to the store as they are in a chat.

    python bench/prefix_reuse.py smollm2-135m
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import neuroscope
from neuroscope.engine import PREFILL_CELL, Engine, Sampling
from neuroscope.models.chat import Prompt
from neuroscope.models.torch_backend import TorchBackend

Messages = list[dict[str, Any]]

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairing")
    parser.add_argument("--turns", type=int, default=10, choices=range(2, 11))
    parser.add_argument("--answer", type=int, default=100, help="tokens of an answer, at most")
    parser.add_argument("--repeat", type=int, default=7, choices=range(1, 11))
    options = parser.parse_args()
    loaded = neuroscope.load(options.pairing).engine
    assert isinstance(loaded.backend, TorchBackend)
    model, tokenizer, layer = loaded.backend.model, loaded.backend.tokenizer, loaded.backend.layer
    reusing, whole = (
        Engine(TorchBackend(model, tokenizer, layer), loaded.sae, loaded.chat, prefix_cache_mb=megabytes)
        for megabytes in (512, 0)
    )
    talk: Messages = []
    other: Messages = []
    for city, food in list(zip(CITIES, FOODS, strict=True))[: options.turns - 1]:
        talk.append(question(city))
        talk.append(answer(reusing, talk, options.answer))
        other += [question(food), talk[-1]]  # what the other one answers does not matter here
        seconds_to_first(reusing, reusing.prepare([*other, question(food)]))
    times: dict[str, list[float]] = {"with": [], "without": []}
    ran: list[int] = []
    for about in LAST[: options.repeat]:
        said = {"role": "assistant", "content": f"About {about}: {talk[-1]['content']}"}
        prompt = reusing.prepare([*talk[:-1], said, question(about)])
        between = reusing.prepare([*other, question(about)])
        seconds_to_first(reusing, between)
        times["with"].append(seconds_to_first(reusing, prompt))
        ran.append(len(prompt.ids) - reusing.reused_tokens)
        times["without"].append(seconds_to_first(whole, prompt))
    spent = {name: median(values) for name, values in times.items()}
    store = reusing.prefix
    one, copies = seconds_of_copies(whole, prompt.ids[:PREFILL_CELL])
    print(f"turn {options.turns}, {len(prompt.ids)} tokens; medians of {options.repeat}")
    print(f"tokens run           {len(prompt.ids)} without, {median(ran):.0f} with reuse")
    ratio = spent["without"] / spent["with"]
    print(
        f"first token          {spent['without']:.2f} s without, {spent['with']:.2f} s with reuse: {ratio:.1f}"
    )
    pairs = sorted(w / r for w, r in zip(times["without"], times["with"], strict=True))
    print(f"                     {pairs[0]:.1f} to {pairs[-1]:.1f} in single pairs")
    print(
        f"a cell               {one * 1e3:.1f} ms to run, {copies * 1e3:.1f} ms to copy out and in: {one / copies:.0f}"
    )
    tokens = len(store) * PREFILL_CELL
    print(f"store                {store.used / 1e6:.0f} MB for {tokens} tokens of both chats")


if __name__ == "__main__":
    main()
