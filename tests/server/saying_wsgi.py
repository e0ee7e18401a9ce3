"""The server as it is shipped around a real model, which says what it is told: `python -m gunicorn saying_wsgi`.

A prompt that holds `say[...]end` is answered with what stands between, token by token, and the end of the turn;
tokenizer, forward passes, features, stop strings and streams are the real ones. Other prompts are sampled as ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from neuroscope import settings
from neuroscope.server.loaded import Load, Loaded
from neuroscope.server.loading import loader
from neuroscope.server.process import start


def load(settled: settings.Settings) -> Load:
    def loads(enter_stage: Callable[[str], None]) -> Loaded:
        loaded = loader(settled)(enter_stage)
        have_it_say(loaded.engine)
        return loaded

    return loads


def have_it_say(engine: Any) -> None:
    """Have `engine` choose the tokens that a prompt tells it to."""
    import neuroscope.engine as module

    sampler, generate, chat = module.Sampler, engine.generate, engine.chat
    answer: list[int] | None = None

    class Told(sampler):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.left = None if answer is None else iter(answer)

        def choose(self, logits: Any, numbers: Any = None) -> Any:
            if self.left is not None:
                logits, numbers = logits.clone(), None
                logits[next(self.left)] += 1000
            return super().choose(logits, numbers)

    def told(prompt: Any, *given: Any, **more: Any) -> Any:
        nonlocal answer
        found = re.search(r"say\[(.*)\]end", chat.tokenizer.decode(prompt.ids), re.DOTALL)
        end = chat.tokenizer.convert_tokens_to_ids("<end_of_turn>")
        answer = None if found is None else [*chat.encode_text(found[1], bos=False).ids, end]
        return generate(prompt, *given, **more)

    module.Sampler = Told  # type: ignore[misc]
    engine.generate = told


def __getattr__(name: str) -> Any:
    if name != "application":
        raise AttributeError(name)
    return start(settings.load, load)
