"""What a client asks of the model: the body of a completion request, checked and in the engine's words.

Fields that are not known are ignored, since many clients send extras; a field that would silently change the
answer if it were ignored is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuroscope.errors import PromptError
from neuroscope.models.conversation import read_messages
from neuroscope.models.sampling_options import Sampling
from neuroscope.server import fields
from neuroscope.server.fields import Fields
from neuroscope.server.problems import Problem, bad_request, from_prompt_error

MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
SEEDS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A checked request. `asked` is a conversation (list of messages) or a raw prompt (string)."""

    asked: list[Any] | str
    model: str | None
    stream: bool
    include_usage: bool
    sampling: Sampling


def read_chat_request(body: Fields) -> CompletionRequest:
    """The body of POST /v1/chat/completions. Raises Problem 400 with the `param` that is wrong."""
    _refuse_what_is_not_done(body)
    top_logprobs = fields.integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS) or 0
    logprobs = fields.boolean(body, "logprobs")
    if top_logprobs and not logprobs:
        raise bad_request("'top_logprobs' needs 'logprobs': true.", "top_logprobs", "invalid_value")
    max_tokens = fields.integer(body, "max_tokens", 1)
    longest = fields.integer(body, "max_completion_tokens", 1) or max_tokens
    return _request(body, _messages(body), longest, logprobs, top_logprobs)


def read_text_request(body: Fields) -> CompletionRequest:
    """The body of POST /v1/completions, a raw prompt. Raises Problem 400 with the `param` that is wrong."""
    if fields.boolean(body, "echo"):
        raise bad_request("'echo' is not supported.", "echo", "unsupported_parameter")
    for name in ("suffix", "best_of"):
        if body.get(name) not in (None, "", 1):
            raise bad_request(f"{name!r} is not supported.", name, "unsupported_parameter")
    _refuse_several(body)
    top_logprobs = fields.integer(body, "logprobs", 0, MAX_TOP_LOGPROBS)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise fields.wrong("prompt", body.get("prompt"), "one string")
    longest = fields.integer(body, "max_tokens", 1) or 16  # the default of this endpoint, unlike the chat's
    return _request(body, prompt, longest, top_logprobs is not None, top_logprobs or 0)


def _request(
    body: Fields, asked: list[Any] | str, max_tokens: int | None, logprobs: bool, top_logprobs: int
) -> CompletionRequest:
    sampling = Sampling(
        max_tokens=max_tokens,
        temperature=fields.number(body, "temperature", 0, 2, 1),
        top_p=fields.number(body, "top_p", 0, 1, 1),
        stop=_stop(body),
        seed=fields.integer(body, "seed", *SEEDS),
        presence_penalty=fields.number(body, "presence_penalty", -2, 2, 0),
        frequency_penalty=fields.number(body, "frequency_penalty", -2, 2, 0),
        logit_bias=_logit_bias(body),
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )
    return CompletionRequest(
        asked=asked,
        model=fields.string(body, "model"),
        stream=fields.boolean(body, "stream"),
        include_usage=fields.boolean(fields.mapping(body, "stream_options"), "include_usage"),
        sampling=sampling,
    )


def _messages(body: Fields) -> list[Any]:
    """The messages as they are, once `conversation` can read them."""
    messages = body.get("messages")
    try:
        read_messages(messages)
    except PromptError as error:
        raise from_prompt_error(error) from error
    assert isinstance(messages, list)
    for number, message in enumerate(messages):
        if message.get("tool_calls"):
            raise _unsupported(f"messages[{number}].tool_calls", "Tools are not supported.")
    return messages


def _stop(body: Fields) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop if stop is not None else []
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(s, str) and s for s in stops)
    ):
        raise fields.wrong(
            "stop", stop, f"a string or a list of at most {MAX_STOPS} strings, none of them empty"
        )
    return tuple(stops)


def _logit_bias(body: Fields) -> dict[int, float]:
    biases = fields.mapping(body, "logit_bias")
    found = {}
    for token, _ in biases.items():
        if not token.isascii() or not token.isdigit() or len(token) > 9:
            raise fields.wrong("logit_bias", token, "an object whose keys are token ids")
        found[int(token)] = fields.number(biases, token, -100, 100, 0)
    return found


def _refuse_what_is_not_done(body: Fields) -> None:
    _refuse_several(body)
    choice = body.get("tool_choice")
    if choice not in (None, "none", "auto"):
        raise _unsupported("tool_choice", "Tools are not supported; leave it out, or say 'none' or 'auto'.")
    if body.get("function_call") not in (None, "none", "auto"):
        raise _unsupported("function_call", "Functions are not supported.")
    if fields.mapping(body, "response_format").get("type") not in (None, "text"):
        raise _unsupported("response_format", "Only the type 'text' is supported.")
    if body.get("modalities") not in (None, [], ["text"]):
        raise _unsupported("modalities", "Only text is supported.")


def _refuse_several(body: Fields) -> None:
    if (fields.integer(body, "n", 1) or 1) > 1:
        raise _unsupported("n", "One answer at a time: 'n' must be 1.")


def _unsupported(name: str, message: str) -> Problem:
    return bad_request(message, name, "unsupported_parameter")
