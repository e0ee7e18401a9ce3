"""An answer as an HTTP response: whole or in chunks, as a chat or as plain text, in OpenAI's shapes.

Both modes are made from the same steps by the same functions, so their texts and usage agree.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neuroscope.server import wire
from neuroscope.server.echo import Echo, NoAnswer
from neuroscope.server.generation import Generation
from neuroscope.server.problems import Problem

if TYPE_CHECKING:
    from neuroscope.server.shapes import Shape, Told
    from neuroscope.steps import Step

log = logging.getLogger(__name__)


class Completion:
    """One answer in one shape. Use `whole` or `chunks`, once."""

    def __init__(
        self,
        generation: Generation | NoAnswer,
        shape: Shape,
        created: int,
        *,
        with_logprobs: bool,
        echo: Echo | None = None,
    ) -> None:
        self._generation = generation
        self._echo = echo or Echo("")
        self._said = 0  # characters of the tokens whose log probabilities have been sent
        self._shape = shape
        self._created = created
        self._with_logprobs = with_logprobs

    def whole(self) -> dict[str, Any]:
        """The answer as one object. Raises Problem when generation fails."""
        steps = [step for step in self._generation.steps(60.0) if step is not None]
        choice = self._shape.whole("".join([self._echo.text, *(step.text for step in steps)]))
        return self._envelope(
            self._shape.whole_object,
            [self._choice(choice, [*self._echo.tokens, *steps], _finish_reason(steps))],
            usage=self._usage(steps),
        )

    def chunks(self, heartbeat_s: float, *, include_usage: bool) -> Iterator[bytes]:
        """The answer as server-sent events, `[DONE]` after every end; a failure is an event with an error."""
        try:
            yield from self._pieces(heartbeat_s, include_usage)
        except Problem as problem:
            yield wire.data(problem.body())
        except Exception:  # the border of a request: the stream has begun, so the client is told in it
            log.exception("completion %s failed", self._generation.completion_id)
            yield wire.data(Problem(500, "The server failed on this request; its log says why.").body())
        yield wire.DONE

    def _pieces(self, heartbeat_s: float, include_usage: bool) -> Iterator[bytes]:
        extra = {"usage": None} if include_usage else {}
        if (opening := self._shape.opening()) is not None:
            yield self._chunk([self._choice(opening, (), None)], extra)
        if self._echo.text or self._echo.tokens:
            echoed = self._shape.piece(self._echo.text)
            yield self._chunk([self._choice(echoed, self._echo.tokens, None)], extra)
        steps: list[Step] = []
        sent = 0  # steps that have been put into a chunk
        for step in self._generation.steps(heartbeat_s):
            if step is None:
                yield wire.HEARTBEAT
                continue
            steps.append(step)
            if step.text:
                yield self._chunk(
                    [self._choice(self._shape.piece(step.text), steps[sent:], None)], extra, steps[sent:]
                )
                sent = len(steps)
        rest = steps[sent:]  # tokens without text: of a matched stop string, or the end of the turn
        yield self._chunk([self._choice(self._shape.ending(), rest, _finish_reason(steps))], extra, rest)
        if include_usage:
            yield self._chunk([], {"usage": self._usage(steps)})

    def _choice(
        self, content: dict[str, Any], steps: Sequence[Told], finish_reason: str | None
    ) -> dict[str, Any]:
        counted = [step for step in steps if not step.is_end]
        logprobs = self._shape.logprobs(counted, self._said) if self._with_logprobs and counted else None
        self._said += sum(len(step.text) for step in counted)
        return {"index": 0, **content, "logprobs": logprobs, "finish_reason": finish_reason}

    def _chunk(
        self, choices: list[dict[str, Any]], extra: dict[str, Any], steps: Sequence[Step] = ()
    ) -> bytes:
        indices = [step.token_index for step in steps]
        tokens = {"neuroscope": {"token_indices": indices}} if indices else {}
        return wire.data(self._envelope(self._shape.chunk_object, choices, **extra, **tokens))

    def _envelope(self, kind: str, choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        return {
            "id": self._generation.completion_id,
            "object": kind,
            "created": self._created,
            "model": self._generation.model,
            "choices": choices,
            **extra,
        }

    def _usage(self, steps: Iterable[Step]) -> dict[str, Any]:
        prompt_tokens = len(self._generation.prompt.ids)
        sampled = sum(not step.is_end for step in steps)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": sampled,
            "total_tokens": prompt_tokens + sampled,
            "prompt_tokens_details": {"cached_tokens": self._generation.cached_tokens},
        }


def _finish_reason(steps: Sequence[Step]) -> str:
    """Without a step, no token was asked for."""
    return steps[-1].finish_reason or "stop" if steps else "length"
