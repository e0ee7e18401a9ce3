"""The prompt as part of a text completion's answer: `echo`, with log probabilities where they are asked for.

With `max_tokens` 0 it is the whole answer, which is how lm-eval asks how likely a text is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import request

from neuroscope.server.connection import ClientWatch
from neuroscope.server.jobs import Once

if TYPE_CHECKING:
    from neuroscope.models.chat import Prompt
    from neuroscope.server.chat_request import CompletionRequest
    from neuroscope.server.service import Service
    from neuroscope.steps import ScoredToken


@dataclass(frozen=True, slots=True)
class Echo:
    """What stands before the answer. `tokens` is empty unless log probabilities are asked for."""

    text: str
    tokens: Sequence[ScoredToken] = ()


class NoAnswer:
    """In the place of a generation where none is asked for."""

    cached_tokens = 0

    def __init__(self, prefix: str, model: str, prompt: Prompt) -> None:
        self.completion_id = prefix + secrets.token_hex(12)
        self.model = model
        self.prompt = prompt

    def steps(self, _: float) -> Iterator[None]:
        return iter(())


def echo_of(service: Service, asked: CompletionRequest, prompt: Prompt) -> Echo:
    """The prompt of the current request; scored in the model's queue, in the place that the request has.

    Raises PromptError when it does not fit the context.
    """
    given = asked.asked if isinstance(asked.asked, str) else None
    if not asked.sampling.logprobs:
        return Echo(given if given is not None else service.text_of(prompt))
    engine, top = service.loaded.engine, asked.sampling.top_logprobs
    job = Once(
        lambda is_given_up: engine.score(
            prompt, top, show_special=given is None, should_stop=is_given_up
        ),  # a BOS that was put before a text is no part of it
        _keep_place,
    )
    service.inference.submit(job)
    watch = ClientWatch(request.environ, lambda: service.inference.cancel(job))
    try:
        tokens = job.wait()
    finally:
        watch.stop()
    return Echo(given if given is not None else "".join(token.text for token in tokens), tokens)


def _keep_place() -> None:
    """The answer that follows needs it."""
