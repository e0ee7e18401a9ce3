"""Claude as a service that answers asks, one by one or in batches. The only file that knows Anthropic's SDK.

The key is read from ANTHROPIC_API_KEY and the address, by the SDK, from ANTHROPIC_BASE_URL; its own retries are off,
since it neither pauses other calls nor tells a spend limit from a rate limit. The Messages API has no temperature any
more: what steadies an answer is its schema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import anthropic
from anthropic.types.messages import MessageBatchRequestCounts

from neuroscope.autointerp.calls.ask import (
    Ask,
    BatchListing,
    Fault,
    Reply,
    StopRun,
    Usage,
    key_in,
    seconds_to_wait,
)
from neuroscope.autointerp.calls.prices import family, table
from neuroscope.errors import LabelError

KEY = "ANTHROPIC_API_KEY"
TIMEOUT_SECONDS = 120.0
THINKING_TOKENS = 4_000
"""Room for the thoughts of models that cannot be told not to think: they count as output."""
LISTED = 100

_SPENT = re.compile(r"spend_limit|billing")
_SPENT_WORDS = re.compile(r"credit balance|spend(ing)? limit|usage limits?\b", re.IGNORECASE)
"""Older accounts get a plain 400 or 429 without a code."""


class Claude:
    """A Claude model. Raises LabelError at once when there is no key."""

    def __init__(self, model: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        if (key := key_in(KEY)) is None:
            raise LabelError(
                f"{KEY} is not set, and {model} cannot be asked without it. Set it to a key from "
                "https://console.anthropic.com/settings/keys and run this again."
            )
        self.model = model
        self._thinking = table()["models"].get(family(model), {}).get("thinking", "always")
        self._sdk = anthropic.Anthropic(api_key=key, max_retries=0, timeout=timeout)

    def close(self) -> None:
        self._sdk.close()

    def max_tokens(self, ask: Ask) -> int:
        return ask.max_tokens + (THINKING_TOKENS if self._thinking == "always" else 0)

    def ask(self, ask: Ask) -> Reply:
        try:
            return _reply(self._sdk.messages.create(**self._request(ask)))
        except anthropic.AnthropicError as error:
            raise self._told(error) from error
        except ValueError as error:
            raise Fault(f"an answer that is no JSON ({type(error).__name__})") from error

    def count(self, ask: Ask) -> int | None:
        request = self._request(ask)
        del request["max_tokens"]
        try:
            return int(self._sdk.messages.count_tokens(**request).input_tokens)
        except (anthropic.AnthropicError, ValueError):
            return None

    def submit(self, asks: Sequence[tuple[str, Ask]]) -> str:
        requests: list[Any] = [{"custom_id": name, "params": self._request(ask)} for name, ask in asks]
        try:
            return self._sdk.messages.batches.create(requests=requests, timeout=600.0).id
        except anthropic.AnthropicError as error:
            raise self._told(error) from error

    def ended(self, batch: str) -> bool:
        try:
            return self._sdk.messages.batches.retrieve(batch).processing_status == "ended"
        except anthropic.AnthropicError as error:
            raise self._told(error) from error

    def results(self, batch: str) -> Iterator[tuple[str, Reply | Fault]]:
        for row in self._rows(batch):
            yield row.custom_id, _result(row.result)

    def _rows(self, batch: str) -> Iterator[Any]:
        try:
            yield from self._sdk.messages.batches.results(batch)
        except anthropic.AnthropicError as error:
            raise self._told(error) from error
        except Exception as error:  # the SDK passes on what its HTTP client raises within a stream
            raise Fault(f"the results were cut off ({type(error).__name__})") from error

    def recent(self) -> Sequence[BatchListing]:
        try:
            page = self._sdk.messages.batches.list(limit=LISTED)
        except anthropic.AnthropicError as error:
            raise self._told(error) from error
        return [
            BatchListing(batch.id, batch.created_at.timestamp(), _size(batch.request_counts))
            for batch in page.data
        ]

    def _request(self, ask: Ask) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens(ask),
            "system": [{"type": "text", "text": ask.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": ask.user}],
            "output_config": {"format": {"type": "json_schema", "schema": dict(ask.schema)}},
        }
        if self._thinking == "on":
            request["thinking"] = {"type": "disabled"}
        return request

    def _told(self, error: anthropic.AnthropicError) -> Fault | StopRun:
        """The SDK's error as ours. The key is in no message, whatever the service repeats."""
        if isinstance(error, anthropic.APIStatusError):
            words = self._without_key(error.api_message or f"status {error.status_code}")
            if reason := _stops(error, words, self.model):
                return StopRun(
                    f"{reason} Every answer so far is kept: run this again and it goes on from there."
                )
            status = error.status_code
            return Fault(
                f"status {status} ({error.type or 'no type'}): {words[:200]}",
                retryable=status in (408, 409, 429) or status >= 500,
                retry_after=seconds_to_wait(error.response.headers),
            )
        if isinstance(error, anthropic.APIConnectionError):
            return Fault(f"no connection ({type(error.__cause__ or error).__name__})")
        return Fault(f"an answer that cannot be read ({type(error).__name__})")

    def _without_key(self, text: str) -> str:
        return text.replace(os.environ.get(KEY) or "\0", "...")


def _stops(error: anthropic.APIStatusError, words: str, model: str) -> str | None:
    """Why no further ask can succeed, and what to do; None when it may."""
    may_wait = error.status_code == 429 and seconds_to_wait(error.response.headers) is not None
    by_words = error.status_code in (400, 403, 429) and not may_wait and _SPENT_WORDS.search(words)
    spent = error.status_code == 402 or _SPENT.search(f"{error.type} {error.error_code}") or by_words
    if spent:
        return (
            f"The account's credit or spend limit is used up ({words}). Add credit or raise the limit at "
            "https://console.anthropic.com/settings/billing."
        )
    if error.status_code == 401:
        return f"{KEY} is not accepted (401). Set it to a valid key from https://console.anthropic.com/settings/keys."
    if error.status_code == 403:
        return f"This key may not do that (403: {words}). Use a key of a workspace that may use {model}."
    if error.status_code == 404:
        return f"The service knows no model {model!r} (404). Choose another with --labeler (labels.labeler)."
    return None


def _reply(message: object) -> Reply:
    """What a message says. Raises Fault for a body that is no message."""
    if not isinstance(message, anthropic.types.Message) or getattr(message, "usage", None) is None:
        raise Fault("an answer that is no message")
    blocks = message.content or []
    text = "".join(block.text for block in blocks if block.type == "text")
    stop = message.stop_reason
    if stop == "refusal":
        return Reply(text, _usage(message.usage), "refused")
    if stop in ("max_tokens", "model_context_window_exceeded"):
        return Reply(text, _usage(message.usage), "truncated")
    return Reply(text, _usage(message.usage))


def _size(counts: MessageBatchRequestCounts) -> int:
    return counts.canceled + counts.errored + counts.expired + counts.processing + counts.succeeded


def _usage(usage: anthropic.types.Usage) -> Usage:
    return Usage(
        input=usage.input_tokens or 0,
        output=usage.output_tokens or 0,
        cache_write=usage.cache_creation_input_tokens or 0,
        cache_read=usage.cache_read_input_tokens or 0,
    )


def _result(result: Any) -> Reply | Fault:
    """One result of a batch; those that expired, were cancelled or met an error of the service may be asked again."""
    if result.type == "succeeded":
        try:
            return _reply(result.message)
        except Fault as fault:
            return fault
    if result.type == "errored":
        kind = result.error.error.type
        return Fault(f"errored in its batch ({kind})", retryable=kind != "invalid_request_error")
    return Fault(f"{result.type} in its batch")
