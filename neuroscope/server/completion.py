"""An answer as an HTTP response: whole or in chunks, as a chat or as plain text, in OpenAI's shapes.

Both modes are made from the same steps by the same functions, so their texts and usage agree.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from neuroscope.server import wire
from neuroscope.server.generation import Generation
from neuroscope.server.problems import Problem

if TYPE_CHECKING:
    from neuroscope.steps import Step

log = logging.getLogger(__name__)

LOWEST_LOGPROB = -9999.0
"""What OpenAI sends for a probability of zero, which JSON cannot carry as a logarithm."""


class Shape(Protocol):
    """How one endpoint words the parts of an answer."""

    prefix: str
    whole_object: str
    chunk_object: str

    def opening(self) -> dict[str, Any] | None:
        """The choice of a chunk before the first token, if there is one."""

    def piece(self, text: str) -> dict[str, Any]:
        """The choice's fields for a piece of the answer."""

    def ending(self) -> dict[str, Any]:
        """The choice's fields in the chunk with the finish reason."""

    def whole(self, text: str) -> dict[str, Any]:
        """The choice's fields for the whole answer."""

    def logprobs(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Log-probabilities of the tokens in `steps`."""


class ChatShape:
    """`/v1/chat/completions`."""

    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> dict[str, Any] | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}}

    def ending(self) -> dict[str, Any]:
        return {"delta": {}}

    def whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def logprobs(self, steps: Sequence[Step]) -> dict[str, Any]:
        return {"content": [_token_logprob(step) for step in steps], "refusal": None}


class TextShape:
    """`/v1/completions`."""

    prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self) -> dict[str, Any] | None:
        return None

    def piece(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def ending(self) -> dict[str, Any]:
        return {"text": ""}

    def whole(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def logprobs(self, steps: Sequence[Step]) -> dict[str, Any]:
        return {
            "tokens": [_text(step.token_bytes) for step in steps],
            "token_logprobs": [_logprob(step.logprob) for step in steps],
            "top_logprobs": [
                {_text(t.text): _logprob(t.logprob) for t in step.top_logprobs} for step in steps
            ],
            "text_offset": _offsets(steps),
        }


class Completion:
    """One answer in one shape. Use `whole` or `chunks`, once."""

    def __init__(self, generation: Generation, shape: Shape, created: int, *, with_logprobs: bool) -> None:
        self._generation = generation
        self._shape = shape
        self._created = created
        self._with_logprobs = with_logprobs

    def whole(self) -> dict[str, Any]:
        """The answer as one object. Raises Problem when generation fails."""
        steps = [step for step in self._generation.steps(60.0) if step is not None]
        choice = self._shape.whole("".join(step.text for step in steps))
        return self._envelope(
            self._shape.whole_object,
            [self._choice(choice, steps, _finish_reason(steps))],
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
        self, content: dict[str, Any], steps: Sequence[Step], finish_reason: str | None
    ) -> dict[str, Any]:
        counted = [step for step in steps if not step.is_end]
        logprobs = self._shape.logprobs(counted) if self._with_logprobs and counted else None
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
    return (steps[-1].finish_reason if steps else None) or "stop"


def _token_logprob(step: Step) -> dict[str, Any]:
    own = {
        "token": _text(step.token_bytes),
        "logprob": _logprob(step.logprob),
        "bytes": list(step.token_bytes),
    }
    top = [
        {"token": _text(t.text), "logprob": _logprob(t.logprob), "bytes": list(t.text)}
        for t in step.top_logprobs
    ]
    return {**own, "top_logprobs": top}


def _logprob(value: float | None) -> float:
    finite = wire.finite(value)
    return LOWEST_LOGPROB if finite is None else max(finite, LOWEST_LOGPROB)


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")


def _offsets(steps: Sequence[Step]) -> list[int]:
    offsets, length = [], 0
    for step in steps:
        offsets.append(length)
        length += len(step.text)
    return offsets
