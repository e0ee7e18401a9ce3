"""Many subscribers of the features stream in one process that costs little: it reads, counts and keeps the time.

Runs beside the server on the same cores: `python -m bench.soak.readers '{"port": ..., "readers": ...}'`. Writes one
line of JSON when everyone is connected, another at the end; ends when its input does.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from array import array
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from bench.soak.limits import raise_open_files

START = re.compile(rb"retry: \d+\nid: [0-9a-f]+-(\d+)\n")
EVENT = re.compile(rb"event: (\w+)\nid: [0-9a-f]+-(\d+)\n(?:data: [^\n]{0,300}?\"fvu\":([0-9.]+))?")
LOOK_SECONDS = 0.5
SLOW_SECONDS = 0.1
SLOW_BYTES = 256
FEW_BYTES = 4096
"""Receive buffer of a client that does not read, so that its end fills soon."""
AT_ONCE = 200
"""Connections asked for before the first of them is answered."""


class Events(NamedTuple):
    """What one piece of a stream says."""

    first: int | None
    """Sequence number of the first event; None when there is none."""
    newest: int
    gaps: int
    counts: tuple[tuple[bytes, int], ...]
    last: bytes
    clocks: tuple[float, ...]


@lru_cache(maxsize=64)
def events(data: bytes) -> Events:
    """Readers of one setting get the very same bytes, which need to be understood once only."""
    found = EVENT.findall(data)
    numbers = [int(sequence) for _, sequence, _ in found]
    if not found:
        return Events(None, 0, 0, (), b"", ())
    gaps = sum(later != earlier + 1 for earlier, later in pairwise(numbers))
    counts = tuple(Counter(name for name, _, _ in found).items())
    clocks = tuple(float(clock) for _, _, clock in found if clock)
    return Events(numbers[0], numbers[-1], gaps, counts, found[-1][0], clocks)


class Reader:
    """One subscriber: what it has seen."""

    __slots__ = ("connection", "counts", "gaps", "is_open", "last", "newest", "rest", "status")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.rest = b""
        self.status = 0
        self.newest: int | None = None
        self.gaps = 0
        self.counts: Counter[bytes] = Counter()
        self.last = b""
        self.is_open = True

    def take(self, data: bytes, now: float, delays: array[float]) -> None:
        data = self.rest + data
        end = data.rfind(b"\n\n") + 2
        if end == 1:
            self.rest = data
            return
        self.rest = data[end:]
        if self.newest is None:
            self.status = int(data.split(b" ", 2)[1])
            start = START.search(data, 0, end)
            if start is None:
                return
            self.newest = int(start[1])
        found = events(data[:end])
        if found.first is None:
            return
        self.gaps += found.gaps + (found.first != self.newest + 1)
        self.newest, self.last = found.newest, found.last
        for name, count in found.counts:
            self.counts[name] += count
        for clock in found.clocks:
            delays.append(now - clock)


class Crowd:
    """All subscribers of this process. `stuck` never read, `slow` read less than is sent."""

    def __init__(self, port: int, paths: list[str], readers: int, stuck: int, slow: int) -> None:
        self._port = port
        self._paths = paths
        self.delays = array("d")
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
        self.stuck = self._connect(stuck, FEW_BYTES)
        self.slow = self._connect(slow, FEW_BYTES)
        self.readers: dict[int, Reader] = {}
        while len(self.readers) < readers:
            for connection in self._connect(min(AT_ONCE, readers - len(self.readers)), None):
                self.readers[connection.fileno()] = Reader(connection)
                self._poll.register(connection.fileno(), select.EPOLLIN | select.EPOLLHUP)
        self.told = False

    def read(self, is_done: Any, seconds: float, *, wait_for_word: bool = False) -> bool:
        """Read until `is_done(reader)` of all, or the end of the input. False when neither came in time."""
        deadline, next_slow = time.monotonic() + seconds, 0.0
        left = {fd for fd, reader in self.readers.items() if not is_done(reader)}
        while (left or wait_for_word) and not self.told and time.monotonic() < deadline:
            for fd, _ in self._poll.poll(SLOW_SECONDS if self.slow else LOOK_SECONDS):
                if fd == sys.stdin.fileno():
                    self.told = not sys.stdin.readline().strip()
                    continue
                reader = self.readers[fd]
                self._receive(fd, reader)
                if fd in left and is_done(reader):
                    left.discard(fd)
            if self.slow and time.monotonic() > next_slow:
                next_slow = time.monotonic() + SLOW_SECONDS
                self._dawdle()
        return not left or self.told

    def _connect(self, count: int, buffer: int | None) -> list[socket.socket]:
        made: list[socket.socket] = []
        for _ in range(count):
            connection = socket.socket()
            if buffer is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            connection.connect(("127.0.0.1", self._port))
            path = self._paths[len(made) % len(self._paths)]
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            connection.setblocking(False)
            made.append(connection)
        return made

    def _receive(self, fd: int, reader: Reader) -> None:
        try:
            data = reader.connection.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            reader.take(data, time.monotonic(), self.delays)
        else:
            reader.is_open = False
            self._poll.unregister(fd)

    def _dawdle(self) -> None:
        for connection in self.slow:
            try:
                connection.recv(SLOW_BYTES)
            except (BlockingIOError, ConnectionError):
                continue


def quantile(delays: array[float], share: float) -> float | None:
    """In milliseconds."""
    if not delays:
        return None
    return round(sorted(delays)[min(len(delays) - 1, int(share * len(delays)))] * 1000, 1)


def summary(crowd: Crowd, in_time: bool, seconds: float) -> dict[str, Any]:
    readers = crowd.readers.values()
    counts = [reader.counts[b"feature_activation"] for reader in readers]
    return {
        "in_time": in_time,
        "seconds": round(seconds, 2),
        "readers": len(readers),
        "refused": sum(reader.status not in (0, 200) for reader in readers),
        "events": sum(counts),
        "fewest": min(counts, default=0),
        "most": max(counts, default=0),
        "gaps": sum(reader.gaps + reader.counts[b"gap"] for reader in readers),
        "ended_with_shutdown": sum(r.last == b"shutdown" and not r.is_open for r in readers),
        "p50_ms": quantile(crowd.delays, 0.5),
        "p99_ms": quantile(crowd.delays, 0.99),
        "max_ms": quantile(crowd.delays, 1.0),
        "cpu_s": round(time.process_time(), 2),
    }


def say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    asked = json.loads(sys.argv[1])
    raise_open_files(asked["readers"] + asked["stuck"] + asked["slow"])
    started = time.monotonic()
    crowd = Crowd(asked["port"], asked["paths"], asked["readers"], asked["stuck"], asked["slow"])
    if not crowd.read(lambda r: r.newest is not None or not r.is_open, asked["patience_s"]):
        say({"error": f"not everyone was connected within {asked['patience_s']} s"})
        return
    say({"connected_s": round(time.monotonic() - started, 2)})
    started = time.monotonic()
    answers = asked["answers"]  # None: until the server ends the streams
    in_time = crowd.read(
        lambda r: not r.is_open or (answers is not None and r.counts[b"generation_complete"] >= answers),
        asked["seconds"],
        wait_for_word=not crowd.readers,
    )
    say(summary(crowd, in_time, time.monotonic() - started))


if __name__ == "__main__":
    main()
