"""Lines for a terminal, a pipe or a file, written without ever waiting for whoever reads them.

A log that waits for a stuck reader of its pipe would stop every stream of the server, and one that fails because
the reader has gone (`| head`) or the disk is full would end it. So what cannot be written now is kept, up to a
limit, and what is past the limit is dropped and counted. Any thread may write.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections import deque

from gevent.monkey import get_original

LIMIT = 1000
"""Lines kept for a reader that does not read."""
LONGEST = 32_768
"""Bytes of one line; a longer one is cut."""
PIECE = select.PIPE_BUF
"""Bytes written at once, where a partner writes too: so many come through a pipe in one piece."""


class Outlet:
    """Writes to one file descriptor. No method raises or waits, but `finish` for as long as it is told."""

    def __init__(self, descriptor: int | None) -> None:
        """`descriptor` is None where there is nowhere to write to."""
        self.dropped = 0
        self._untold = 0
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._process = os.getpid()
        self._lock = get_original(
            "_thread", "allocate_lock"
        )()  # a native thread may not take one of gevent's
        self._poll = get_original("select", "poll")  # gevent's would let other greenlets run amid a log call
        self._descriptor, self._piece = _opened(descriptor)

    def write(self, line: str) -> None:
        """`line`, its end included, now or later."""
        if self._descriptor is None:
            return
        self._forget_the_parents()
        if len(self._lines) >= LIMIT:
            self.dropped += 1
            self._untold += 1
        else:
            self._lines.append(_encoded(line))
        self.flush()

    def flush(self) -> None:
        """Write what can be written at once."""
        self._forget_the_parents()
        if self._lock.acquire(False):  # else whoever holds it is writing
            try:
                self._drain()
            finally:
                self._lock.release()

    def finish(self, patience_s: float) -> None:
        """Write what waits, as long as that takes no more than `patience_s`."""
        deadline = time.monotonic() + patience_s
        self.flush()
        while (self._lines or self._rest) and self._descriptor is not None and time.monotonic() < deadline:
            waiting = self._poll()
            waiting.register(self._descriptor, select.POLLOUT)
            waiting.poll(20)
            self.flush()

    def take_untold(self) -> int:
        """How many lines were dropped since this was asked last, once there is room again to tell of it."""
        if len(self._lines) > LIMIT // 2:
            return 0
        untold, self._untold = self._untold, 0
        return untold

    def _forget_the_parents(self) -> None:
        """After a fork: what was waiting then is the parent's to write, and its lock may have been taken."""
        if self._process != os.getpid():
            self._process, self._rest = os.getpid(), b""
            self._lines.clear()
            self._lock = get_original("_thread", "allocate_lock")()

    def _drain(self) -> None:
        while self._rest or self._lines:
            self._rest = self._rest or self._lines.popleft()
            if not self._is_writable():
                return
            try:
                written = os.write(self._descriptor or 0, self._rest[: self._piece])
            except BlockingIOError:
                return
            except OSError:  # its reader has gone, or its disk is full: the server goes on
                self.dropped += 1
                self._rest = b""
                continue
            self._rest = self._rest[written:]

    def _is_writable(self) -> bool:
        poll = self._poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))


def _encoded(line: str) -> bytes:
    text = line.encode("utf-8", "backslashreplace")
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + b"...\n"


def _opened(descriptor: int | None) -> tuple[int | None, int]:
    """The descriptor to write to, and how much at once.

    A pipe or terminal is opened once more, for itself: to make the one it was given non-blocking would make it so
    for every process that has it. Where that cannot be done, a poll before each small write is nearly as good.
    """
    if descriptor is None:
        return None, PIECE
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor, LONGEST
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags), PIECE
    except OSError:
        pass
    return descriptor, PIECE
