"""The features stream: a ring of what was generated lately, read by every subscriber at its own pace.

Publishing never waits: it writes one slot and wakes who waits for it. A reader that falls behind the ring is told
how much it lost. Entries hold a token's *unranked* activations, so that ids do not depend on anyone's filter;
ranking is done on reading, in `views.py`. Touched from the hub's thread only.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gevent.event import Event

from neuroscope.events import GenerationComplete, GenerationError

if TYPE_CHECKING:
    from neuroscope.steps import PromptCell, Step

_IDENTIFIER = re.compile(r"(?:(?P<epoch>[0-9a-f]{1,32})-)?(?P<sequence>[0-9]{1,15})", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedToken:
    """One token of one answer, with its activations still unranked."""

    completion_id: str
    layer: int
    step: Step


@dataclass(frozen=True, slots=True, eq=False)
class ReadPrompt:
    """Successive tokens of one answer's prompt, likewise."""

    completion_id: str
    layer: int
    cell: PromptCell


Published = GeneratedToken | ReadPrompt | GenerationComplete | GenerationError


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One slot of the ring."""

    sequence: int
    """1 for the first event of this process."""
    published: Published

    def concerns(self, completion_id: str | None) -> bool:
        """Whether it is of this answer; of any, for None."""
        return completion_id is None or self.published.completion_id == completion_id


class Reading(NamedTuple):
    """What a reader at a cursor finds."""

    missed: int
    """Events that were gone before they could be read."""
    entries: list[Entry]
    cursor: int
    """Where to read on."""


class FeatureStream:
    """The last `capacity` events. `epoch` tells one run of the server from another."""

    def __init__(self, capacity: int, *, epoch: str | None = None) -> None:
        self.epoch = epoch or secrets.token_hex(4)
        self._slots: list[Entry | None] = [None] * capacity
        self._newest = 0
        self._news = Event()
        self._closed = False
        self._spans: dict[str, tuple[int, int]] = {}  # of every answer in the ring, and of some before
        self.missed = 0
        """Events that readers were told they lost, of all readers together."""

    @property
    def newest(self) -> int:
        """Sequence number of the newest event, 0 before the first."""
        return self._newest

    @property
    def oldest(self) -> int:
        """Sequence number of the oldest event still held."""
        return max(1, self._newest - len(self._slots) + 1)

    @property
    def closed(self) -> bool:
        return self._closed

    def publish(self, published: Published) -> int:
        self._newest += 1
        self._slots[self._newest % len(self._slots)] = Entry(self._newest, published)
        first, _ = self._spans.pop(published.completion_id, (self._newest, 0))
        self._spans[published.completion_id] = first, self._newest
        if len(self._spans) > len(self._slots):
            del self._spans[next(iter(self._spans))]
        self._wake()
        return self._newest

    def close(self) -> None:
        """No more events will come. Readers still get those that are there."""
        self._closed = True
        self._wake()

    def read(self, cursor: int, limit: int) -> Reading:
        """The next `limit` events after `cursor`, the sequence number of the last one read."""
        start = max(cursor + 1, self.oldest)
        stop = min(self._newest, start + limit - 1)
        entries = list(self._between(start, stop))
        return Reading(start - cursor - 1, entries, max(stop, start - 1))

    def before(self, completion_id: str) -> int:
        """The cursor of a reader of this answer from its beginning; of one that has not begun, now."""
        return self._spans.get(completion_id, (self._newest + 1, 0))[0] - 1

    def answer(self, completion_id: str) -> Reading | None:
        """Every event of this answer, and how many between its first and last are gone; None for an unknown one."""
        if (span := self._spans.get(completion_id)) is None:
            return None
        first, last = span
        start = max(first, self.oldest)
        entries = [entry for entry in self._between(start, last) if entry.concerns(completion_id)]
        return Reading(min(start, last + 1) - first, entries, last)

    def overlap(self, completion_id: str, after: int, until: int) -> int:
        """How many of the events after `after` up to `until` lie between this answer's first and last."""
        first, last = self._spans.get(completion_id, (1, 0))
        return max(0, min(last, until) - max(first - 1, after))

    def wait(self, cursor: int, timeout_s: float | None) -> bool:
        """Wait for an event after `cursor`, or the end. False when neither came in time."""
        if self._newest > cursor or self._closed:
            return True
        return bool(self._news.wait(timeout_s))

    def is_identifier(self, text: str) -> bool:
        """Whether `text` may be an event's id, of this run or another."""
        return _IDENTIFIER.fullmatch(text) is not None

    def identifier(self, sequence: int) -> str:
        return f"{self.epoch}-{sequence}"

    def cursor_after(self, identifier: str) -> int | None:
        """The cursor of a reader whose last event was `identifier`; None for an id of another run."""
        match = _IDENTIFIER.fullmatch(identifier)
        if match is None or match["epoch"] not in (None, self.epoch):
            return None
        return min(int(match["sequence"]), self._newest)

    def _wake(self) -> None:
        news, self._news = self._news, Event()
        news.set()

    def _between(self, start: int, stop: int) -> Iterator[Entry]:
        for sequence in range(start, stop + 1):
            entry = self._slots[sequence % len(self._slots)]
            if entry is not None:
                yield entry
