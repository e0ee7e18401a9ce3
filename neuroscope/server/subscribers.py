"""Who reads the features stream: how many may, what each is sent, and when it ends.

A subscriber is a cursor into the ring, so a slow one costs nothing but its own gap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import gevent

from neuroscope.server import wire
from neuroscope.server.fanout import BATCH, Seat
from neuroscope.server.problems import Problem, wrong
from neuroscope.server.stream import Entry, FeatureStream, Reading
from neuroscope.server.views import View

RETRY_MS = 2000
MAX_VIEWS = 64
RETRY_AFTER_S = 10
COMPLETION_ID = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscriber begins."""

    cursor: int
    is_other_run: bool = False
    """Its last event was of another run of the server: what it missed of that run cannot be known."""


def read_start(stream: FeatureStream, last_id: str | None, completion_id: str | None) -> Start:
    """After the event `last_id`; else before the one completion that is asked for; else now."""
    if last_id is not None:
        cursor = stream.cursor_after(last_id)
        return Start(0, is_other_run=True) if cursor is None else Start(cursor)
    return Start(stream.newest if completion_id is None else stream.before(completion_id))


def read_since(stream: FeatureStream, query: Mapping[str, str]) -> str | None:
    """`?since=`, for readers that cannot set a header. It is checked; the header a browser sends is not."""
    since = query.get("since")
    if since is not None and not stream.is_identifier(since):
        raise wrong("since", since, "an event's id, or 0")
    return since


def read_completion_id(query: Mapping[str, str]) -> str | None:
    """`?completion_id=`. Raises Problem 400 for what can be no id: a reader would wait for ever."""
    completion_id = query.get("completion_id")
    if completion_id is not None and not COMPLETION_ID.fullmatch(completion_id):
        raise wrong("completion_id", completion_id, "the id of an answer, as chatcmpl-1939d6fb")
    return completion_id


class Subscribers:
    """Counts the readers of one stream. Distinct views are limited because each is ranked for every token."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._views: Counter[View] = Counter()

    def __len__(self) -> int:
        return self._views.total()

    def admit(self, view: View) -> Callable[[], None]:
        """Count one more reader. Returns the function that takes it off again. Raises Problem 503 if full."""
        if len(self) >= self._limit:
            raise _full(f"There are {self._limit} subscribers already, as many as serve.max_streams allows.")
        if view not in self._views and len(self._views) >= MAX_VIEWS:
            raise _full(
                f"Subscribers use {MAX_VIEWS} different settings already. Use one of theirs, or the defaults."
            )
        self._views[view] += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            if counted:
                counted = False
                self._views[view] -= 1
                if not self._views[view]:
                    del self._views[view]

        return leave


def follow(
    stream: FeatureStream,
    write: Callable[[Entry, View], bytes],
    view: View,
    start: Start,
    seat: Seat,
    *,
    only: Callable[[], str | None],
    heartbeat_s: float,
    is_gone: Callable[[], bool],
) -> Iterator[bytes]:
    """The stream as one subscriber sees it, from `start` until the server stops or the subscriber leaves.

    What comes while it sits is written past this iterator. `only` tells the id of the one completion that is
    followed at the moment.
    """
    cursor = start.cursor
    yield f": one event a token\nretry: {RETRY_MS}\nid: {stream.identifier(cursor)}\n\n".encode()
    if start.is_other_run:
        yield _gap(stream, stream.oldest - 1, None, "The server was restarted since the last event.")
        cursor = stream.oldest - 1
    while not is_gone():
        reading = stream.read(cursor, BATCH)
        if missed := _missed(stream, cursor, reading, only()):
            stream.missed += missed
            before = cursor + reading.missed
            yield _gap(stream, before, missed, "These events are older than the server keeps.")
        cursor = reading.cursor
        block = b"".join(write(e, view) for e in reading.entries if e.concerns(only()))
        if block:
            yield block
        if len(reading.entries) == BATCH:
            gevent.sleep(0)  # between the full batches of a long replay
        elif stream.closed and not (reading.entries or reading.missed):
            yield wire.event(
                "shutdown", {"reason": "The server is shutting down."}, stream.identifier(cursor)
            )
            return
        else:
            cursor, is_called = seat.rest(cursor, heartbeat_s)
            if not is_called:
                yield wire.HEARTBEAT


def _missed(stream: FeatureStream, cursor: int, reading: Reading, completion_id: str | None) -> int:
    """Of one completion's reader it is no loss what others were sent."""
    if completion_id is None or not reading.missed:
        return reading.missed
    return stream.overlap(completion_id, cursor, cursor + reading.missed)


def _gap(stream: FeatureStream, last_missed: int, missed: int | None, reason: str) -> bytes:
    return wire.event("gap", {"missed": missed, "reason": reason}, stream.identifier(last_missed))


def _full(message: str) -> Problem:
    return Problem(503, message, code="too_many_subscribers", retry_after_s=RETRY_AFTER_S)
