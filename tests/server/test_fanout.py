"""New events on their way to many sockets at once: in order, whole, and nobody's trouble is another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import gevent
import pytest
from gevent import socket
from scripted import acts_of, stats

from neuroscope.ranking import Ranking
from neuroscope.server import fanout, wire
from neuroscope.server.fanout import Fanout, Form, Seat
from neuroscope.server.stream import Entry, FeatureStream, GeneratedToken
from neuroscope.server.subscribers import follow, read_start
from neuroscope.server.views import EventWriter, View
from neuroscope.steps import Step

DEFAULT = View(Ranking())
NONE = View(Ranking(filter="none"))


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    with gevent.Timeout(60):
        yield


def token(index: int, name: str = "c") -> GeneratedToken:
    acts = acts_of(index)
    step = Step(index, 5, b"x", 9, "x", acts, acts, float("nan"), None, (), None, 9)
    return GeneratedToken(name, 7, step)  # type: ignore[arg-type]


class Published:
    """A stream that is written to, and what rendering it took."""

    def __init__(self, capacity: int = 1000) -> None:
        self.stream = FeatureStream(capacity, epoch="ab")
        self.writer = EventWriter([f"label of {i}" for i in range(32)], stats(), self.stream)
        self.written: list[tuple[int, View]] = []
        self.fanout = Fanout(self.stream, self.write)

    def write(self, entry: Entry, view: View) -> bytes:
        self.written.append((entry.sequence, view))
        return self.writer.write(entry, view)

    def say(self, count: int, name: str = "c") -> None:
        for index in range(count):
            self.stream.publish(token(index, name))

    def one_by_one(self, view: View = DEFAULT, only: str | None = None) -> bytes:
        """All events of the ring, rendered and sent each for itself, as a reader gets them that never sits."""
        entries = self.stream.read(0, 10_000).entries
        return b"".join(self.writer.write(e, view) for e in entries if e.concerns(only))


@dataclass
class Pipe:
    """A socket of which the test says how much it takes: each number for one offer, None to refuse; then all."""

    takes: list[int | None] = field(default_factory=list)
    got: bytes = b""
    offers: int = 0
    finished: int = 0

    def offer(self, data: bytes) -> int:
        self.offers += 1
        room = self.takes.pop(0) if self.takes else len(data)
        if room is None:
            raise BlockingIOError
        self.got += data[:room]
        return min(room, len(data))

    def write(self, block: bytes) -> None:
        self.got += block

    def finish_offer(self, rest: memoryview) -> None:
        gevent.sleep(0.001)
        self.finished += 1
        self.got += rest


class Reader:
    """A subscriber in a greenlet, as the server has it."""

    def __init__(
        self, published: Published, pipe: Pipe | None = None, view: View = DEFAULT, only: str | None = None
    ) -> None:
        self.pipe = pipe or Pipe()
        self.gone = False
        self.through = b""
        """What its own greenlet read."""
        self.seat: Seat = published.fanout.seat(lambda: Form(view, only, bytes), self.pipe)
        self._blocks = follow(
            published.stream,
            published.write,
            view,
            read_start(published.stream, None, only),
            self.seat,
            only=lambda: only,
            heartbeat_s=1000,
            is_gone=lambda: self.gone,
        )
        next(self._blocks)  # the opening
        self.greenlet = gevent.spawn(self._read)

    def _read(self) -> None:
        for block in self._blocks:
            if block != wire.HEARTBEAT:
                self.pipe.write(block)
                self.through += block


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        gevent.sleep(0.002)


def sit(published: Published, *readers: Reader) -> None:
    until(lambda: all(reader.seat._form is not None for reader in readers))


def test_who_sits_gets_the_same_bytes_as_who_reads_alone() -> None:
    published = Published()
    readers = [Reader(published, view=view) for view in (DEFAULT, NONE) for _ in range(3)]
    sit(published, *readers)
    for _ in range(7):
        published.say(3)
        gevent.sleep(0)
    for reader, view in zip(readers, [DEFAULT] * 3 + [NONE] * 3, strict=True):
        until(lambda reader=reader, view=view: reader.pipe.got == published.one_by_one(view))  # type: ignore[misc]
        assert reader.through == b""
        assert reader.seat.sent_bytes == len(reader.pipe.got)


def test_an_event_is_rendered_once_for_all_who_sit_in_one_form() -> None:
    published = Published()
    readers = [Reader(published) for _ in range(200)]
    sit(published, *readers)
    published.say(5)
    until(lambda: all(r.pipe.got == published.one_by_one() for r in readers))
    assert published.written == [(n, DEFAULT) for n in range(1, 6)]


def test_what_a_socket_does_not_take_comes_later_and_others_do_not_wait() -> None:
    published = Published()
    slow = Pipe([10, None, 0, 1, 500, None, None, 3])
    readers = [Reader(published), Reader(published, slow), Reader(published)]
    for _ in range(10):
        sit(published, *readers)
        published.say(2)
        until(lambda: readers[0].pipe.got == readers[2].pipe.got == published.one_by_one())
        until(lambda: slow.got == published.one_by_one())
    assert slow.takes == []
    assert slow.finished == 5
    assert readers[0].through == readers[2].through == b""
    assert readers[1].through != b"", "after a refusal its own greenlet reads"


def test_one_who_leaves_amid_the_writing_is_sent_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "SLICE", 1)
    published = Published()
    readers = [Reader(published) for _ in range(5)]

    class Leaving(Pipe):
        def offer(self, data: bytes) -> int:
            for reader in readers[1:]:
                if reader.pipe is not self:
                    reader.gone = True
                    reader.seat.wake()
            return super().offer(data)

    leaving = Reader(published, Leaving())
    sit(published, *readers, leaving)
    published.say(1)
    until(lambda: readers[0].pipe.got == leaving.pipe.got == published.one_by_one())
    gevent.joinall([reader.greenlet for reader in readers[1:]])
    offers = [reader.pipe.offers for reader in readers[1:]]
    published.say(1)
    until(lambda: readers[0].pipe.got == leaving.pipe.got == published.one_by_one())
    assert [reader.pipe.offers for reader in readers[1:]] == offers


def test_readers_of_one_answer_are_sent_that_answer_only() -> None:
    published = Published()
    reader = Reader(published, only="b")
    sit(published, reader)
    published.say(2, "a")
    published.say(2, "b")
    published.say(1, "a")
    until(lambda: reader.pipe.got == published.one_by_one(only="b"))
    until(lambda: reader.seat.cursor == 5)
    assert reader.pipe.offers <= 2


def test_more_than_the_ring_holds_is_a_gap_and_no_silence() -> None:
    published = Published(capacity=4)
    reader = Reader(published)
    sit(published, reader)
    published.say(10)
    until(lambda: b"ab-10\n" in reader.pipe.got)
    (gap, *events) = wire.messages(reader.pipe.got)
    assert b'"missed":6' in gap
    assert len(events) == 4
    sit(published, reader)
    published.say(1)
    until(lambda: b"ab-11\n" in reader.pipe.got)
    assert len(list(wire.messages(reader.pipe.got))) == 6


def test_many_events_at_once_come_whole_and_in_order() -> None:
    published = Published()
    reader, blocked = Reader(published), Reader(published, Pipe([7] * 20))
    sit(published, reader, blocked)
    published.say(500)
    until(lambda: reader.pipe.got == blocked.pipe.got == published.one_by_one())


def test_an_event_that_cannot_be_rendered_fails_its_own_readers_only() -> None:
    published = Published()
    broken = Reader(published, view=NONE)
    well = Reader(published)
    write = published.write

    def fails(entry: Entry, view: View) -> bytes:
        if view == NONE:
            raise RuntimeError("the event is wrong")
        return write(entry, view)

    published.fanout._write = fails
    sit(published, broken, well)
    published.say(1)
    until(lambda: well.pipe.got == published.one_by_one())
    until(lambda: broken.through == published.one_by_one(NONE))
    assert broken.pipe.offers == 0


def test_the_end_reaches_all_who_sit() -> None:
    published = Published()
    readers = [Reader(published) for _ in range(3)]
    sit(published, *readers)
    published.say(1)
    published.stream.close()
    gevent.joinall([reader.greenlet for reader in readers])
    for reader in readers:
        assert [m.split(b'"')[3] for m in wire.messages(reader.pipe.got)] == [
            b"feature_activation",
            b"shutdown",
        ]


def test_a_heartbeat_comes_after_silence_only() -> None:
    published = Published()
    seat = published.fanout.seat(lambda: Form(DEFAULT, None, bytes), Pipe())
    assert seat.rest(0, 0.01) == (0, False)

    def speak() -> None:
        for _ in range(15):
            published.say(1)
            gevent.sleep(0.02)

    speaking = gevent.spawn(speak)
    cursor, is_called = seat.rest(0, 0.1)
    assert (cursor, is_called) == (15, False), "not while there was something to send"
    speaking.join()


def test_a_call_that_comes_before_the_rest_is_not_lost() -> None:
    seat = Published().fanout.seat(lambda: Form(DEFAULT, None, bytes), Pipe())
    seat.wake()
    assert seat.rest(0, 1000) == (0, True)


def test_no_greenlet_stays_when_nobody_sits() -> None:
    published = Published()
    reader = Reader(published)
    sit(published, reader)
    reader.gone = True
    reader.seat.wake()
    reader.greenlet.join()
    published.say(1)
    until(lambda: published.fanout._greenlet is None)
    again = Reader(published)
    sit(published, again)
    published.say(1)
    until(lambda: b"ab-2\n" in again.pipe.got)


def test_real_sockets_of_which_one_is_full() -> None:
    published = Published()
    ends = [socket.socketpair() for _ in range(3)]

    class Real(Pipe):
        def __init__(self, connection: socket.socket) -> None:
            super().__init__()
            self.connection = connection

        def offer(self, data: bytes) -> int:
            return int(self.connection.send(data, 0, 0.0))

        def write(self, block: bytes) -> None:
            self.connection.sendall(block)

        def finish_offer(self, rest: memoryview) -> None:
            self.connection.sendall(rest)

    for one, _ in ends:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    readers = [Reader(published, Real(one)) for one, _ in ends]
    received = [b"", b"", b""]

    def receive(number: int) -> None:
        while piece := ends[number][1].recv(65536):
            received[number] += piece

    receiving = [gevent.spawn(receive, number) for number in range(2)]
    sit(published, *readers)
    published.say(100)
    until(lambda: received[0] == received[1] == published.one_by_one())
    assert not readers[2].greenlet.dead, "nobody reads there"
    ends[2][1].close()
    readers[2].greenlet.join()
    assert isinstance(readers[2].greenlet.exception, OSError)
    for greenlet in receiving:
        greenlet.kill()
    for one, other in ends:
        one.close()
        other.close()


def test_a_fault_in_writing_to_all_is_said_and_wakes_every_reader(caplog: pytest.LogCaptureFixture) -> None:
    """Else they would wait for their heartbeat, and nothing would come meanwhile."""
    published = Published()
    broken, other = Pipe(), Pipe()
    broken.offer = lambda data: 1 // 0  # type: ignore[method-assign]
    form = Form(DEFAULT, None, bytes)
    seats = [published.fanout.seat(lambda: form, pipe) for pipe in (broken, other)]
    resting = [gevent.spawn(seat.rest, 0, 30) for seat in seats]
    gevent.sleep(0)
    with caplog.at_level("ERROR"):
        published.say(1)
        cursors = [one.get(timeout=20) for one in resting]
    assert all(called for _, called in cursors)
    assert "ZeroDivisionError" in caplog.text
    gevent.spawn(seats[1].rest, 1, 30)
    gevent.sleep(0)
    before = other.got
    published.say(1)
    until(lambda: other.got != before)  # it sits again, and is written to
