"""What is new, straight to the sockets of all who have read everything before it.

A reader at the end of the ring takes a seat. While it sits, one greenlet writes to all who do: events are framed
once for each form that is asked for, and every socket takes what it can at once. What is more than that is left to
the reader's own greenlet, which is woken: a full socket, a gap, a client that has left, the end of the stream.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import gevent
from gevent.event import Event

from neuroscope.server.stream import Entry, FeatureStream
from neuroscope.server.views import View

log = logging.getLogger(__name__)

BATCH = 32
"""Events written at once."""
SLICE = 64
"""Sockets written to before other greenlets get their turn."""
PAUSES = 4.0
LONGEST_PAUSE_S = 0.04
"""After writing to all, so many times as long is waited, up to this: a crowd takes a share of one core at most."""


class Outgoing(Protocol):
    """Where a reader's bytes go."""

    def offer(self, data: bytes) -> int:
        """Write as much as is taken at once; how much. Raises OSError where that is nothing."""

    def finish_offer(self, rest: memoryview) -> None:
        """Write what `offer` left, however long that takes."""


@dataclass(frozen=True, slots=True)
class Form:
    """Who agrees in it is sent the same bytes."""

    view: View
    completion_id: str | None
    frame: Callable[[bytes], bytes]
    """From server-sent events to what is written to the socket."""


class Fanout:
    """Everyone who sits. `write` renders one event, and raises what is wrong with it."""

    def __init__(self, stream: FeatureStream, write: Callable[[Entry, View], bytes]) -> None:
        self.stream = stream
        self._write = write
        self._seated: dict[Form, set[Seat]] = {}
        self._done = 0  # every seat has all events up to this one
        self._greenlet: gevent.Greenlet | None = None

    def seat(self, form: Callable[[], Form], outgoing: Outgoing | None = None) -> Seat:
        """For one reader, whose wishes may change. Without `outgoing` its greenlet is woken for every event."""
        return Seat(self, form, outgoing)

    def add(self, seat: Seat, form: Form) -> None:
        """`seat` has all events that there are."""
        self._seated.setdefault(form, set()).add(seat)
        if self._greenlet is None:
            self._done = self.stream.newest
            self._greenlet = gevent.spawn(self._run)

    def remove(self, seat: Seat, form: Form) -> None:
        """Of no effect when it does not sit."""
        seats = self._seated.get(form)
        if seats is not None:
            seats.discard(seat)
            if not seats:
                del self._seated[form]

    def _run(self) -> None:
        try:
            while self._seated:
                self.stream.wait(self._done, None)
                gevent.sleep(0)  # whoever waits for an answer of its own goes first
                started = time.monotonic()
                self._send_until(min(self.stream.newest, self._done + BATCH))
                took = time.monotonic() - started
                is_behind = self.stream.newest - self._done >= BATCH
                gevent.sleep(0 if is_behind else min(took * PAUSES, LONGEST_PAUSE_S))
        except Exception:  # the border of all readers: each looks for itself, and meets what concerns it
            log.exception("events could not be written to all who read them")
            for seat in [seat for seats in self._seated.values() for seat in seats]:
                seat.wake()
        finally:
            self._greenlet = None

    def _send_until(self, last: int) -> None:
        number = 0
        for form, seats in list(self._seated.items()):
            made_for, size = -1, 0
            data: bytes | None = None
            for seat in list(seats):
                number += 1
                if number % SLICE == 0:
                    gevent.sleep(0)
                if seat not in seats:
                    continue
                if self.stream.closed or seat.outgoing is None:
                    seat.wake()
                elif seat.cursor < last:
                    if seat.cursor != made_for:
                        made_for = seat.cursor
                        try:
                            size, data = self._made(form, made_for, last)
                        except Exception:  # each reader meets it again, as an error of its own request
                            size, data = 0, None
                        if seat not in seats:
                            continue
                    seat.take(data, size, last)
        self._done = last

    def _made(self, form: Form, cursor: int, last: int) -> tuple[int, bytes | None]:
        """The events between as server-sent events, how long they are, and framed; None where some are gone."""
        reading = self.stream.read(cursor, last - cursor)
        if reading.missed:
            return 0, None
        wanted = [entry for entry in reading.entries if entry.concerns(form.completion_id)]
        block = b"".join(self._write(entry, form.view) for entry in wanted)
        return len(block), form.frame(block) if block else b""


class Seat:
    """One reader's."""

    def __init__(self, fanout: Fanout, form: Callable[[], Form], outgoing: Outgoing | None) -> None:
        self.cursor = 0
        self.outgoing = outgoing
        self.sent_bytes = 0
        """Of events, as server-sent events, that were written here."""
        self._fanout = fanout
        self._wanted = form
        self._form: Form | None = None
        self._sent_at = 0.0
        self._unsent: memoryview | None = None
        self._awake = Event()

    def rest(self, cursor: int, timeout_s: float) -> tuple[int, bool]:
        """Sit until there is something for the reader itself to do; False when nothing was sent for `timeout_s`.

        Returns also where it has to read on.
        """
        self.cursor, is_called, stream = cursor, True, self._fanout.stream
        if stream.newest <= cursor and not stream.closed and not self._awake.is_set():
            self._form, self._sent_at = self._wanted(), time.monotonic()
            self._fanout.add(self, self._form)
            try:
                is_called = self._wait(timeout_s)
            finally:
                self._stand_up()
        self._awake.clear()
        if self._unsent is not None:
            assert self.outgoing is not None
            rest, self._unsent = self._unsent, None
            self.outgoing.finish_offer(rest)
        return self.cursor, is_called

    def wake(self) -> None:
        """Have the reader itself look; nothing more is written here until it sits again."""
        self._stand_up()
        self._awake.set()

    def take(self, data: bytes | None, size: int, last: int) -> None:
        """Write `data`, the events up to `last`. What cannot be written is left to the reader."""
        if not data:
            if data is None:
                self.wake()
            else:
                self.cursor = last
            return
        assert self.outgoing is not None
        try:
            sent = self.outgoing.offer(data)
        except OSError:  # it is full, or has left
            self.wake()
            return
        self.cursor, self._sent_at = last, time.monotonic()
        self.sent_bytes += size
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self.wake()

    def _wait(self, timeout_s: float) -> bool:
        while not self._awake.wait(max(0.0, self._sent_at + timeout_s - time.monotonic())):
            if time.monotonic() >= self._sent_at + timeout_s:
                return False
        return True

    def _stand_up(self) -> None:
        if self._form is not None:
            self._fanout.remove(self, self._form)
            self._form = None
