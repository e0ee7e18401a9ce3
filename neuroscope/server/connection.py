"""Noticing that the other end of a connection has left or stopped reading, which WSGI does not tell.

A greenlet waits to read on the request's socket and peeks at one byte: end of file means that the client has
gone. Behind bytes of a next request, or a stray line end, the system is asked instead.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import gevent
from gevent.monkey import get_original

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

STALL_SECONDS = 60.0
"""How long a client may leave what is sent to it unread before its connection is cut."""
_LOOK_SECONDS = 5.0
_BEHIND_SECONDS = 0.2
"""Between looks at a client that has sent more than its request: the bytes that nobody reads yet hide its end."""


def is_plain(environ: WSGIEnvironment) -> bool:
    """Whether the request's socket takes the very bytes that the client gets: HTTP/1, and not encrypted."""
    is_socket = type(environ.get("gunicorn.socket")) is gevent.socket.socket  # encrypted ones are of a child
    return is_socket and environ["SERVER_PROTOCOL"] in ("HTTP/1.0", "HTTP/1.1")


class ClientWatch:
    """Calls `on_gone` once when the client of this request leaves. A test client never does."""

    def __init__(self, environ: WSGIEnvironment, on_gone: Callable[[], None]) -> None:
        self.gone = False
        self._on_gone = on_gone
        self._sending_since: float | None = None
        self._socket: Any = environ.get("gunicorn.socket")
        self._greenlet = None if self._socket is None else gevent.spawn(self._watch)

    def stop(self) -> None:
        """Must be called before gunicorn reads the connection's next request."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
            self._greenlet = None

    def offer(self, data: bytes) -> int:
        """Write to the socket what it takes at once; how much. Raises OSError where that is nothing."""
        return int(self._socket.send(data, 0, 0.0))

    def finish_offer(self, rest: memoryview) -> None:
        """Write what `offer` left. Raises OSError."""
        self._sending_since = time.monotonic()
        self._socket.sendall(rest)
        self._sending_since = None

    def timed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """`blocks`, noting how long each one takes to be sent."""
        for block in blocks:
            self._sending_since = time.monotonic()
            yield block
            self._sending_since = None

    def _watch(self) -> None:
        while not self._has_left():
            since = self._sending_since
            if since is not None and time.monotonic() - since > STALL_SECONDS:
                self._cut()
                return
        self.gone = True
        self._on_gone()

    def _has_left(self) -> bool:
        try:
            gevent.socket.wait_read(
                self._socket.fileno(), timeout=_LOOK_SECONDS, timeout_exc=_NothingToReadError()
            )
            if self._socket.recv(1, socket.MSG_PEEK) == b"":
                return True
            gevent.sleep(_BEHIND_SECONDS)
            return _is_closed(self._socket)
        except _NothingToReadError:
            pass
        except (OSError, ValueError):  # ValueError: closed here meanwhile, so there is no descriptor
            return True
        return False

    def _cut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has left by itself meanwhile


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it, though bytes may still be to be read."""
    hang_up = getattr(select, "POLLRDHUP", 0)  # of Linux; elsewhere a full hang-up is told by itself
    poll = get_original("select", "poll")()
    poll.register(connection.fileno(), hang_up)
    return bool(poll.poll(0))


class _NothingToReadError(Exception):
    """The client is there and silent, as it should be."""
