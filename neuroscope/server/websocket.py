"""What stands between simple_websocket, which flask-sock has speak the protocol, and the request's own socket.

simple_websocket answers a wrong handshake with an exception and sends with `socket.send`, which may write half a
frame, from its reader and from whoever speaks. So the handshake is checked before, and the socket it is given is
a `Line`. gunicorn closes the connection afterwards: flask-sock ends the request with StopIteration.
"""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from gevent.selectors import GeventSelector
from simple_websocket import ConnectionClosed

from neuroscope.server import wire
from neuroscope.server.connection import STALL_SECONDS
from neuroscope.server.problems import Problem, bad_request

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

VERSION = "13"
MAX_MESSAGE = 16_384
"""Characters a client may say at once: a thousand feature numbers and more."""
PONG_HEARTBEATS = 4
"""How many heartbeats a ping may stay unanswered before the other end counts as dead."""
CLOSE_SECONDS = 0.5
"""How long the other end may take to confirm the end; the whole server ends within three seconds."""
PAUSE_SECONDS = 0.01
"""The pause before each read: who floods the server slows down itself only."""
SEND_BUFFER = 131_072
"""Bytes the kernel holds for one connection. What a slow reader has not read yet waits in the ring, not there."""
_RECEIVED = 256
_DRAINED = 65_536
_PIECE = 16_384
_WAITED_SECONDS = 0.05
_PING = b"\x89\x00"


def check_handshake(environ: WSGIEnvironment) -> str:
    """The key of a WebSocket's first request. Raises Problem 400 or 426 for what is none."""
    if environ["REQUEST_METHOD"] != "GET" or environ["SERVER_PROTOCOL"] == "HTTP/1.0":
        raise bad_request("A WebSocket begins with a GET request of HTTP/1.1.", code="invalid_handshake")
    if environ.get("CONTENT_LENGTH", "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ:
        raise bad_request("A WebSocket's first request has no body.", code="invalid_handshake")
    if environ.get("HTTP_SEC_WEBSOCKET_VERSION") != VERSION:
        raise Problem(426, f"Sec-WebSocket-Version must be {VERSION}.")
    key: str = environ.get("HTTP_SEC_WEBSOCKET_KEY", "")
    try:
        length = len(base64.b64decode(key, validate=True))
    except ValueError:
        length = 0
    if length != 16:
        raise bad_request("Sec-WebSocket-Key must be 16 bytes in base64.", code="invalid_handshake")
    return key


def handed_over(environ: WSGIEnvironment, key: str, line: Line) -> WSGIEnvironment:
    """`environ` for simple_websocket: `line` as its socket, and no header of the client's but the checked key.

    It would fail on some headers that HTTP lets pass, and agree to compression.
    """
    headers = {
        "HTTP_HOST": "localhost",
        "HTTP_UPGRADE": "websocket",
        "HTTP_CONNECTION": "Upgrade",
        "HTTP_SEC_WEBSOCKET_VERSION": VERSION,
        "HTTP_SEC_WEBSOCKET_KEY": key,
    }
    rest = {name: value for name, value in environ.items() if not name.startswith("HTTP_")}
    return {**rest, **headers, "gunicorn.socket": line}


def framed(message: bytes) -> bytes:
    """As one text frame. A server masks nothing, so it is the same for everyone."""
    if len(message) < 126:
        return b"\x81" + bytes([len(message)]) + message
    if len(message) < 1 << 16:
        return b"\x81\x7e" + len(message).to_bytes(2) + message
    return b"\x81\x7f" + len(message).to_bytes(8) + message


def messages_framed(blocks: bytes) -> bytes:
    """The named events among server-sent blocks, each as a frame."""
    return b"".join(framed(message) for message in wire.messages(blocks))


def server_options(heartbeat_s: float) -> dict[str, Any]:
    """`SOCK_SERVER_OPTIONS`: how flask-sock makes each simple_websocket.Server. It takes threads when not told."""
    return {
        "ping_interval": heartbeat_s,
        "max_message_size": MAX_MESSAGE,
        "receive_bytes": _RECEIVED,
        "thread_class": _reader,
        "event_class": Event,
        "selector_class": GeventSelector,
    }


class Line:
    """The request's socket, with as much of a socket's interface as simple_websocket uses.

    `headers` stand in the handshake's answer. `on_end` is called once, when nothing more is read: the other end
    has said that it leaves, or has left, or does not keep to the protocol.
    """

    def __init__(
        self, connection: socket.socket, headers: Iterable[tuple[str, str]], on_end: Callable[[], None]
    ) -> None:
        self.server: Any = None
        """The simple_websocket.Server that reads here, once it does."""
        self._socket = connection
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._head = "\r\n".join(["", *(f"{name}: {value}" for name, value in headers), ""]).encode("latin-1")
        self._on_end = on_end
        self._sending = BoundedSemaphore(1)
        self._unanswered = 0
        self._is_cut = False
        self._is_over = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """All of it or nothing more at all. Of no effect after the end."""
        if self._head:  # the first bytes are the handshake's answer, whose headers are simple_websocket's own
            data, self._head = data.replace(b"\r\n", self._head, 1), b""
        if data == _PING and self._is_excused():
            return
        with self._sending:
            self._send(data)

    def offer(self, data: bytes) -> int:
        """Whole frames, as much of them as is taken at once; how much. Raises OSError where that is nothing.

        After less than all, nobody else sends before `finish_offer`.
        """
        if self._sending.locked() or not self.server.connected:
            raise BlockingIOError
        sent = int(self._socket.send(data, 0, 0.0))  # type: ignore[call-arg]  # of gevent: without waiting
        if sent < len(data):
            self._sending.acquire()
        return sent

    def finish_offer(self, rest: memoryview) -> None:
        """Of no effect after the end."""
        try:
            for start in range(0, len(rest), _PIECE):
                self._send(rest[start : start + _PIECE])
        finally:
            self._sending.release()

    def recv(self, size: int) -> bytes:
        gevent.sleep(PAUSE_SECONDS)
        while self.server.input_buffer and not self._is_over:
            gevent.sleep(PAUSE_SECONDS)  # who does not read the answers is not asked for more
        if self._is_cut:  # the kernel would give out first what came before
            return b""
        try:
            data: bytes = self._socket.recv(size)
        except OSError:
            data = b""
        if data:
            self._lives()
        else:
            self._cut()
        return data

    def close(self) -> None:
        """gunicorn closes the socket itself."""

    def end(self) -> None:
        """Called in the greenlet that reads, at its end.

        A socket closed over bytes that nobody read throws away what it sent last, so they are read a while.
        """
        self._is_over = True
        self._on_end()
        if not self._is_cut:
            self._shut(socket.SHUT_WR)
            with gevent.Timeout(CLOSE_SECONDS, False):
                while self.recv(_DRAINED):
                    pass
        self._cut()

    def finish(self) -> None:
        """Give the other end a moment to confirm the end, then leave the socket alone."""
        self._is_over = True
        self.server.thread.join(CLOSE_SECONDS)
        self._cut()
        self.server.thread.join()

    def _send(self, data: bytes | memoryview) -> None:
        started = time.monotonic()
        try:
            with gevent.Timeout(STALL_SECONDS, TimeoutError()):
                self._socket.sendall(data)
        except OSError:  # it has left, or reads nothing
            self._cut()
            return
        if time.monotonic() - started > _WAITED_SECONDS:
            self._lives()  # it reads, if slowly; its pong waits behind what it has yet to read

    def _is_excused(self) -> bool:
        """Whether this ping is left out. simple_websocket cuts who has not answered one when the next is due."""
        if self._sending.locked():  # a message is under way, which has a time limit of its own
            self._lives()
            return True
        self._unanswered += 1
        self.server.pong_received = self._unanswered < PONG_HEARTBEATS
        return False

    def _lives(self) -> None:
        self._unanswered = 0
        if self.server is not None:
            self.server.pong_received = True

    def _cut(self) -> None:
        self._is_cut = True
        if self.server is not None:
            self.server.connected = False  # who speaks on is told by its ConnectionClosed
        self._shut(socket.SHUT_RDWR)

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            return  # the other end was quicker


def _reader(target: Any) -> gevent.Greenlet:
    """The `thread_class`: a greenlet that runs `target`, the method of a simple_websocket.Server that reads."""
    line: Line = target.__self__.sock
    line.server = target.__self__
    return gevent.Greenlet(_read, line, target)


def _read(line: Line, target: Callable[[], None]) -> None:
    try:
        target()
    except ConnectionClosed:
        pass  # it closes for want of a pong what was closed by the other greenlet before
    finally:
        line.end()
