"""How the two endpoints word the parts of an answer: a chat's message, or plain text.

What is put together from the parts is said in `completion.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from neuroscope.server import wire

if TYPE_CHECKING:
    from neuroscope.steps import ScoredToken, Step

    Told = Step | ScoredToken

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

    def logprobs(self, steps: Sequence[Told], offset: int) -> dict[str, Any]:
        """Log-probabilities of the tokens in `steps`, before which `offset` characters were said."""


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

    def logprobs(self, steps: Sequence[Told], offset: int) -> dict[str, Any]:
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

    def logprobs(self, steps: Sequence[Told], offset: int) -> dict[str, Any]:
        return {
            "tokens": [_name(step.token_bytes) for step in steps],
            "token_logprobs": [_own_logprob(step) for step in steps],
            "top_logprobs": [_named_logprobs(step) for step in steps],
            "text_offset": _offsets(steps, offset),
        }


def _token_logprob(step: Told) -> dict[str, Any]:
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


def _own_logprob(step: Told) -> float | None:
    """None for the first token of a prompt, which nothing stands before."""
    return None if step.logprob is None else _logprob(step.logprob)


def _named_logprobs(step: Told) -> dict[str, float] | None:
    """Of the likeliest and the token itself, so at most one more than asked for.

    Of tokens with the same name (ids that a vocabulary is padded with have none) the likeliest.
    """
    if step.logprob is None:
        return None
    named: dict[str, float] = {}
    for likeliest_first in step.top_logprobs:
        named.setdefault(_name(likeliest_first.text), _logprob(likeliest_first.logprob))
    named.setdefault(_name(step.token_bytes), _logprob(step.logprob))
    return named


def _logprob(value: float | None) -> float:
    finite = wire.finite(value)
    return LOWEST_LOGPROB if finite is None else max(finite, LOWEST_LOGPROB)


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")


def _name(token: bytes) -> str:
    """A token as a key: parts of characters would all be U+FFFD, and one would hide another's number."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _offsets(steps: Sequence[Told], length: int) -> list[int]:
    offsets = []
    for step in steps:
        offsets.append(length)
        length += len(step.text)
    return offsets
