"""The words of a call: what is asked, what comes back, how it goes wrong, and what a service must be able to do."""

from __future__ import annotations

import email.utils
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from neuroscope.errors import LabelError

LONGEST_WAIT_SECONDS = 86_400.0
"""A service that asks for more is not waited for."""

Key = tuple[int, str, str]
"""Feature, purpose, content hash: with the model, the identity of an ask."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to a language model."""

    feature: int
    purpose: str
    """What the answer is for: `label`, `detection`."""
    system: str
    """The instructions; the same for every ask of a purpose, so that a service can cache them."""
    user: str
    schema: Mapping[str, Any]
    """JSON schema of the answer."""
    max_tokens: int
    content_hash: str
    """The same question has the same hash, in every run; another question has another."""

    @property
    def key(self) -> Key:
        return (self.feature, self.purpose, self.content_hash)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call, as the service counted them. No token is in two of the counts."""

    input: int = 0
    output: int = 0
    cache_write: int = 0
    cache_read: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered. It was paid for, also when it is of no use."""

    text: str
    usage: Usage
    stop: Literal["end", "refused", "truncated"] = "end"


Check = Callable[[Key, str], str | None]
"""Why a text is no answer to the ask of that key, or None when it is one."""


class Fault(Exception):
    """A call that brought no reply: asked again when `retryable`, after `retry_after` seconds where it is known."""

    def __init__(self, words: str, *, retryable: bool = True, retry_after: float | None = None) -> None:
        super().__init__(words)
        self.retryable = retryable
        self.retry_after = retry_after


class StopRun(LabelError):
    """What would fail for every other ask too: nothing more is asked, what was answered is kept."""


class Client(Protocol):
    """A service that answers asks. Threads share it."""

    @property
    def model(self) -> str:
        """Name of the model, as the service knows it."""

    def ask(self, ask: Ask) -> Reply:
        """One call, without retries. Raises Fault or StopRun."""

    def max_tokens(self, ask: Ask) -> int:
        """The most tokens that an answer may be charged for."""

    def count(self, ask: Ask) -> int | None:
        """Input tokens of an ask, counted by the service without charge; None when it does not count."""

    def close(self) -> None:
        """Gives the connections back."""


@dataclass(frozen=True, slots=True)
class BatchListing:
    """A batch that the service knows of."""

    id: str
    created_at: float
    """Seconds since the epoch."""
    size: int


class BatchClient(Client, Protocol):
    """A service that also answers many asks within a day, for less. Results come in any order."""

    def submit(self, asks: Sequence[tuple[str, Ask]]) -> str:
        """Hands in asks by custom id and returns the batch's id. Raises Fault or StopRun."""

    def ended(self, batch: str) -> bool:
        """Whether every ask of the batch has its result."""

    def results(self, batch: str) -> Iterator[tuple[str, Reply | Fault]]:
        """Custom ids with what came of them."""

    def recent(self) -> Sequence[BatchListing]:
        """The latest batches of the account."""


def key_in(variable: str) -> str | None:
    """The key in an environment variable, None when there is none. Raises LabelError for what cannot be sent as one."""
    key = os.environ.get(variable)
    if key and not all("!" <= character <= "~" for character in key):
        raise LabelError(
            f"{variable} holds a blank, a line break or a letter that no key has: it may have come along when the key "
            f"was copied. Set {variable} to the key alone and run this again."
        )
    return key or None


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """`retry-after-ms` or `retry-after` (seconds or a date) in seconds from now.

    None when there is neither, or it is no time within LONGEST_WAIT_SECONDS.
    """
    try:
        seconds = _stated_seconds(headers)
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if seconds is not None and seconds <= LONGEST_WAIT_SECONDS else None


def _stated_seconds(headers: Mapping[str, str]) -> float | None:
    if (milliseconds := headers.get("retry-after-ms")) is not None:
        return float(milliseconds) / 1000
    if (found := headers.get("retry-after")) is None:
        return None
    if (date := email.utils.parsedate_tz(found)) is not None:
        return email.utils.mktime_tz(date) - time.time()
    return float(found)
