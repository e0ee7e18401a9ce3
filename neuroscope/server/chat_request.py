"""What a client asks of the model: the body of a completion request, checked and in the engine's words.

Fields that are not known are ignored, since many clients send extras; a field that would silently change the
answer if it were ignored is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from neuroscope.errors import PromptError, shown
from neuroscope.models.conversation import read_messages
from neuroscope.models.sampling_options import Sampling
from neuroscope.models.token_ids import TokenIds
from neuroscope.server import fields
from neuroscope.server.fields import Fields
from neuroscope.server.problems import Problem, bad_request, from_prompt_error, wrong

MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
DEFAULT_TEXT_TOKENS = 16
"""Of a text completion that does not say, as OpenAI's; a chat's answer may fill the context."""
SEEDS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A checked request. `asked` is a conversation (list of messages) or a raw prompt (string or token ids).

    `prompt_field` and `limit_field` are the fields that say what is asked and how long the answer may be.
    """

    asked: list[Any] | str | TokenIds
    prompt_field: str
    limit_field: str
    model: str | None
    stream: bool
    include_usage: bool
    prompt_features: bool
    """The features stream gets the prompt's tokens too."""
    sampling: Sampling
    echo: bool = False
    """The prompt comes before the answer. Then `max_tokens` may be 0: the prompt alone."""
    is_limit_own: bool = False
    """The client said nothing of the answer's length; `sampling.max_tokens` is what this endpoint takes it to mean."""

    def sampling_within(self, room: int) -> Sampling:
        """`sampling`; a limit that the client did not send is no higher than `room`: it could not lower it."""
        limit = self.sampling.max_tokens
        if not self.is_limit_own or limit is None or room < 1:
            return self.sampling
        return replace(self.sampling, max_tokens=min(limit, room))


def read_chat_request(body: Fields) -> CompletionRequest:
    """The body of POST /v1/chat/completions. Raises Problem 400 with the `param` that is wrong."""
    _refuse_what_is_not_done(body)
    top_logprobs = fields.integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS) or 0
    logprobs = fields.boolean(body, "logprobs")
    if top_logprobs and not logprobs:
        raise bad_request("'top_logprobs' needs 'logprobs': true.", "top_logprobs", "invalid_value")
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    fields.integer(body, "max_tokens", 1)
    sampling = _sampling(body, fields.integer(body, limit, 1), logprobs, top_logprobs)
    return _request(body, _messages(body), ("messages", limit), sampling)


def read_text_request(body: Fields) -> CompletionRequest:
    """The body of POST /v1/completions, a raw prompt. Raises Problem 400 with the `param` that is wrong."""
    if body.get("suffix") not in (None, ""):
        raise bad_request("'suffix' is not supported.", "suffix", "unsupported_parameter")
    if (fields.integer(body, "best_of", 1) or 1) > 1:
        raise bad_request("'best_of' is not supported.", "best_of", "unsupported_parameter")
    _refuse_several(body)
    top_logprobs = fields.integer(body, "logprobs", 0, MAX_TOP_LOGPROBS)
    prompt = _prompt(body)
    echo = fields.boolean(body, "echo")
    longest = fields.integer(body, "max_tokens", 0 if echo else 1)
    limit = DEFAULT_TEXT_TOKENS if longest is None else longest
    sampling = _sampling(body, limit, top_logprobs is not None, top_logprobs or 0)
    request = _request(body, prompt, ("prompt", "max_tokens"), sampling)
    return replace(request, echo=echo, is_limit_own=longest is None)


def _prompt(body: Fields) -> str | TokenIds:
    """One string or one list of token ids, either of which may be the only one of a list."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and fields.whole(prompt[0]) is None:
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    ids = [fields.whole(token) for token in prompt] if isinstance(prompt, list) else []
    known = tuple(token for token in ids if token is not None)
    if ids and len(known) == len(ids):
        return TokenIds(known)
    raise wrong("prompt", body.get("prompt"), "one string or one list of token ids")


def _sampling(body: Fields, max_tokens: int | None, logprobs: bool, top_logprobs: int) -> Sampling:
    return Sampling(
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


def _request(
    body: Fields, asked: list[Any] | str | TokenIds, names: tuple[str, str], sampling: Sampling
) -> CompletionRequest:
    return CompletionRequest(
        asked=asked,
        prompt_field=names[0],
        limit_field=names[1],
        model=fields.string(body, "model"),
        stream=fields.boolean(body, "stream"),
        include_usage=_include_usage(body),
        prompt_features=_prompt_features(body),
        sampling=sampling,
    )


def _messages(body: Fields) -> list[Any]:
    """The messages as they are, once `conversation` can read them."""
    messages = body.get("messages")
    try:
        read_messages(messages)
    except PromptError as error:
        raise from_prompt_error(error, "messages") from error
    assert isinstance(messages, list)
    for number, message in enumerate(messages):
        if message.get("tool_calls"):
            raise _unsupported(f"messages[{number}].tool_calls", "Tools are not supported.")
    return messages


def _include_usage(body: Fields) -> bool:
    name = "stream_options.include_usage"
    return fields.boolean({name: fields.mapping(body, "stream_options").get("include_usage")}, name)


def _prompt_features(body: Fields) -> bool:
    """Of our own extension: here no other client sends what we do not know, so an unknown key is a slip."""
    own = fields.mapping(body, "neuroscope")
    unknown = [key for key in own if key != "prompt_features"]
    if unknown:
        raise bad_request(
            f"'neuroscope' has the key {shown(unknown[0])}; it may have 'prompt_features'.",
            f"neuroscope.{unknown[0]}"[:100],
            "unknown_parameter",
        )
    name = "neuroscope.prompt_features"
    return fields.boolean({name: own.get("prompt_features")}, name)


def _stop(body: Fields) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop if stop is not None else []
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(s, str) and s for s in stops)
    ):
        raise wrong("stop", stop, f"a string or a list of at most {MAX_STOPS} strings, none of them empty")
    return tuple(stops)


def _logit_bias(body: Fields) -> dict[int, float]:
    biases = fields.mapping(body, "logit_bias")
    found = {}
    for token, bias in biases.items():
        if not re.fullmatch("0|[1-9][0-9]{0,8}", token):
            raise _wrong_bias(f"has the key {shown(token)}; its keys must be token ids, as '1234'.")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise _wrong_bias(f"of token {token} is {shown(bias)}; it must be a number from -100 to 100.")
        found[int(token)] = float(bias)
    return found


def _wrong_bias(what: str) -> Problem:
    return bad_request(f"'logit_bias' {what}", "logit_bias", "invalid_value")


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
