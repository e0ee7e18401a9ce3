"""One WebSocket connection: its handshake, whole messages, pings, and a proper end. What is said is not known here.

gunicorn sends the head of the answer and closes the connection; between the two the request's own socket is
used, by a greenlet that reads and by whoever sends. wsproto knows the frames. No extension is negotiated, so
nothing arrives compressed.
"""

from __future__ import annotations

import base64
import binascii
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import gevent
from flask import Response
from gevent.lock import BoundedSemaphore
from werkzeug.wsgi import ClosingIterator
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from neuroscope.server.connection import STALL_SECONDS
from neuroscope.server.problems import Problem, bad_request

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

VERSION = "13"
MAX_MESSAGE = 16_384
"""Characters a client may say at once: a thousand feature numbers and more."""
PONG_HEARTBEATS = 4
"""How many heartbeats a ping may stay unanswered before the other end counts as dead."""
CLOSE_SECONDS = 0.5
"""How long the other end may take to confirm the end; the whole server ends within three seconds."""
FRAME_SECONDS = 0.01
"""The pause after each frame that is read: who floods the server slows down itself only."""
SEND_BUFFER = 131_072
"""Bytes the kernel holds for one connection. What a slow reader has not read yet waits in the ring, not there."""
_RECEIVED = 4096
_WAITED_SECONDS = 0.05


def check_handshake(environ: WSGIEnvironment) -> bytes:
    """What the client must be answered to show that its request was understood. Raises Problem 400 or 426."""
    if environ["REQUEST_METHOD"] != "GET" or environ["SERVER_PROTOCOL"] == "HTTP/1.0":
        raise bad_request("A WebSocket begins with a GET request of HTTP/1.1.", code="invalid_handshake")
    if environ.get("CONTENT_LENGTH", "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ:
        raise bad_request("A WebSocket's first request has no body.", code="invalid_handshake")
    if environ.get("HTTP_SEC_WEBSOCKET_VERSION") != VERSION:
        raise Problem(426, f"Sec-WebSocket-Version must be {VERSION}.")
    key = environ.get("HTTP_SEC_WEBSOCKET_KEY", "")
    try:
        length = len(base64.b64decode(key, validate=True))
    except (ValueError, binascii.Error):
        length = 0
    if length != 16:
        raise bad_request("Sec-WebSocket-Key must be 16 bytes in base64.", code="invalid_handshake")
    return generate_accept_token(key.encode("ascii"))


class SwitchingProtocols(Response):
    """The answer 101, then `converse` on the same connection, which gunicorn closes when that returns."""

    def __init__(self, accept: bytes, converse: Callable[[], None]) -> None:
        super().__init__(status=101)
        self._accept = accept
        self._converse = converse

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", self._accept.decode()),
        ]
        write: Any = start_response("101 Switching Protocols", headers)
        write.__self__.force_close()  # gunicorn's response: what the client sent last is no next request
        return ClosingIterator(self._run(), self.close)

    def _run(self) -> Iterator[bytes]:
        yield b""  # has gunicorn send the head
        self._converse()


class WebSocket:
    """The connection after its handshake.

    `hear` is called with every message, in the greenlet that reads; `on_end` once, when the other end has said
    that it leaves, has left, or is not to be spoken to any more.
    """

    def __init__(
        self,
        connection: socket.socket,
        heartbeat_s: float,
        hear: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        self.ended = False
        self._socket = connection
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._heartbeat_s = heartbeat_s
        self._hear = hear
        self._on_end = on_end
        self._frames = Connection(ConnectionType.SERVER)
        self._sending = BoundedSemaphore(1)
        self._message = ""
        self._ping_at = time.monotonic() + heartbeat_s
        self._unanswered_since: float | None = None
        self._reader = gevent.spawn(self._read)

    def send(self, frames: bytes) -> None:
        """Send whole frames, as `text_frame` makes them. Of no effect after the end."""
        with self._sending:
            if self._frames.state is ConnectionState.OPEN:
                self._transmit(frames)

    def close(self, code: int, reason: str) -> None:
        """Say that this is the end, unless it is over already. `finish` waits for the answer."""
        self._say(CloseConnection(code, reason))

    def finish(self) -> None:
        """Give the other end a moment to confirm the end, then leave the socket alone."""
        self._reader.join(CLOSE_SECONDS)
        self._reader.kill()

    def _say(self, event: Event, *states: ConnectionState) -> None:
        with self._sending:
            if self._frames.state in (ConnectionState.OPEN, *states):
                self._transmit(self._frames.send(event))

    def _transmit(self, frames: bytes) -> None:
        """All of it or nothing more at all: `socket.send` may write a part, and half a frame spoils the rest."""
        started = time.monotonic()
        try:
            with gevent.Timeout(STALL_SECONDS, TimeoutError()):
                self._socket.sendall(frames)
        except OSError:  # it has left, or reads nothing
            self._end()
            return
        if time.monotonic() - started > _WAITED_SECONDS:
            self._unanswered_since = (
                None  # it reads, if slowly; its pong waits behind what it has yet to read
            )

    def _read(self) -> None:
        try:
            while data := self._receive():
                if self.ended:  # by an error: the rest is read only so that our last word is not lost
                    gevent.sleep(FRAME_SECONDS)
                    continue
                self._frames.receive_data(data)
                for event in self._frames.events():
                    self._take(event)
                    if self.ended:
                        break
                    gevent.sleep(FRAME_SECONDS)
                if self._frames.state is ConnectionState.CLOSED:
                    return
        except OSError:
            return
        finally:
            self._end()

    def _receive(self) -> bytes:
        """What the other end sent; nothing when it has left. The pings are sent meanwhile."""
        while True:
            if time.monotonic() >= self._ping_at:
                self._ping()
            with gevent.Timeout(max(0.0, self._ping_at - time.monotonic()), False):
                data: bytes = self._socket.recv(_RECEIVED)
                return data

    def _ping(self) -> None:
        now = time.monotonic()
        since, patience = self._unanswered_since, self._heartbeat_s * PONG_HEARTBEATS
        if since is not None and now - since > patience:
            raise TimeoutError(f"no pong for {patience} s")
        self._ping_at = now + self._heartbeat_s
        if self._sending.locked():
            return  # a message is under way, which has a time limit of its own
        if since is None:
            self._unanswered_since = now
        self._say(Ping())

    def _take(self, event: Event) -> None:
        self._unanswered_since = None  # it lives
        if isinstance(event, CloseConnection):
            # Its end, its answer to ours, or wsproto's word for bytes that are no frame.
            self._part(event.code, event.reason)
        elif isinstance(event, Ping):
            self._say(event.response())
        elif isinstance(event, BytesMessage):
            self._part(CloseReason.UNSUPPORTED_DATA, "Only text is understood.")
        elif isinstance(event, TextMessage):
            self._message += event.data
            if len(self._message) > MAX_MESSAGE:
                self._part(CloseReason.MESSAGE_TOO_BIG, f"{MAX_MESSAGE} characters are read at most.")
            elif event.message_finished:
                message, self._message = self._message, ""
                self._hear(message)

    def _part(self, code: int, reason: str | None) -> None:
        self._say(CloseConnection(code, reason), ConnectionState.REMOTE_CLOSING)
        self._leave()
        if self._frames.state is ConnectionState.LOCAL_CLOSING:
            self._shut(socket.SHUT_WR)  # who does not keep to the protocol may not answer either

    def _leave(self) -> None:
        if not self.ended:
            self.ended = True
            self._on_end()

    def _end(self) -> None:
        """Nothing can be sent or heard any more; a sender that waits is let go."""
        self._leave()
        self._shut(socket.SHUT_RDWR)

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            return  # the other end was quicker


def text_frame(text: bytes) -> bytes:
    """A whole message in UTF-8 as a client is sent it: one frame, unmasked."""
    return bytes(Connection(ConnectionType.SERVER).send(TextMessage(data=text.decode())))
