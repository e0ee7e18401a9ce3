"""The features stream over a WebSocket: the same events from the same ring, each as one JSON message.

A client may change its own settings as it listens. How frames are sent and read is said in `websocket.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from flask import Response, request
from wsproto.frame_protocol import CloseReason

from neuroscope.errors import shown
from neuroscope.server import wire
from neuroscope.server.problems import Problem, bad_request
from neuroscope.server.queries import read_query
from neuroscope.server.service import Service
from neuroscope.server.stream import Entry
from neuroscope.server.subscribers import Start, follow, read_completion_id, read_since, read_start
from neuroscope.server.views import PARAMETERS, View, read_view
from neuroscope.server.websocket import SwitchingProtocols, WebSocket, check_handshake, text_frame

if TYPE_CHECKING:
    import socket

SETTINGS = (*PARAMETERS, "completion_id")
"""What a query string may say and a message may change."""


def open_socket(service: Service) -> Response:
    """Answer the current request, a WebSocket's handshake. Whatever is refused is refused as ordinary HTTP."""
    accept = check_handshake(request.environ)
    if service.stopping:
        _ = service.loaded
    query = read_query(*SETTINGS, "since")
    since = read_since(service.stream, query)
    subscriber = SocketSubscriber(service, query)
    start = read_start(service.stream, since, subscriber.completion_id)
    converse = partial(subscriber.converse, request.environ["gunicorn.socket"], start)
    response = SwitchingProtocols(accept, converse)
    response.call_on_close(subscriber.leave)
    return response


class SocketSubscriber:
    """One reader of the stream. Takes a place when it is made, which `leave` gives back. Raises Problem 400, 503."""

    def __init__(self, service: Service, query: Mapping[str, str]) -> None:
        self._service = service
        self._query = {name: query[name] for name in SETTINGS if name in query}
        read_completion_id(self._query)
        self._view = read_view(self._query, service.ranking)
        self._give_back = service.subscribers.admit(self._view)
        self._socket: WebSocket | None = None

    @property
    def completion_id(self) -> str | None:
        return self._query.get("completion_id")

    def leave(self) -> None:
        self._give_back()

    def converse(self, connection: socket.socket, start: Start) -> None:
        """Send the stream from `start` until the client leaves or the server stops."""
        service = self._service
        self._socket = WebSocket(connection, service.serve.heartbeat_s, self._hear, service.stream.wake)
        blocks = follow(
            service.stream,
            self._write,
            self._view,
            start,
            completion_id=None,  # as the view, it may change: `_write` knows both
            heartbeat_s=service.serve.heartbeat_s,
            is_gone=lambda: self._socket is None or self._socket.ended,
        )
        try:
            self._send(
                {"event": "settings", "id": service.stream.identifier(start.cursor), **self._settings()}
            )
            for block in blocks:
                self._socket.send(b"".join(map(_frame, wire.messages(block))))
            self._socket.close(CloseReason.GOING_AWAY, "The server is shutting down.")
        finally:
            self._socket.finish()

    def _write(self, entry: Entry, _at_first: View) -> bytes:
        if self.completion_id not in (None, entry.published.completion_id):
            return b""
        return self._service.write_event(entry, self._view)

    def _hear(self, text: str) -> None:
        try:
            self._configure(_read(text))
        except Problem as problem:
            self._send({"event": "error", "data": problem.body()})
        else:
            self._send({"event": "settings", **self._settings()})

    def _configure(self, changes: Mapping[str, str | None]) -> None:
        asked = {**self._query, **changes}
        query = {name: text for name, text in asked.items() if text is not None}
        read_completion_id(query)
        view = read_view(query, self._service.ranking)
        self._give_back()
        try:
            self._give_back = self._service.subscribers.admit(view)
        except Problem:
            self._give_back = self._service.subscribers.admit(self._view)
            raise
        self._query, self._view = query, view

    def _settings(self) -> dict[str, Any]:
        ranking = self._view.ranking
        return {
            "data": {
                "filter": ranking.filter,
                "threshold": ranking.threshold,
                "top_k": ranking.top_k,
                "min_activation": ranking.min_activation,
                "features": None if ranking.only is None else sorted(ranking.only),
                "align": self._view.align,
                "completion_id": self.completion_id,
            }
        }

    def _send(self, message: dict[str, Any]) -> None:
        assert self._socket is not None
        self._socket.send(text_frame(wire.encode(message)))


def _read(text: str) -> dict[str, str | None]:
    """The changes that a message asks for, in the words of a query string. Raises Problem 400."""
    try:
        message = wire.loads(text.encode())
    except ValueError as error:
        sentence = str(error).replace("The body", "The message", 1)
        raise bad_request(sentence, code="invalid_json") from error
    kind = message.get("type") if isinstance(message, dict) else None
    if kind != "configure":
        raise bad_request(
            'Send nothing, or {"type": "configure", ...} with the settings to change.',
            "type",
            "invalid_value",
        )
    unknown = [name for name in message if name not in ("type", *SETTINGS)]
    if unknown:
        raise bad_request(
            f"{shown(unknown[0])} is no setting; there are {', '.join(SETTINGS)}.", code="invalid_value"
        )
    return {name: _text(name, value) for name, value in message.items() if name != "type"}


def _text(name: str, value: Any) -> str | None:
    if name == "features" and isinstance(value, list) and all(type(index) is int for index in value):
        return ",".join(map(str, value))
    if isinstance(value, bool | list | dict):
        accepted = "a list of feature numbers" if name == "features" else "a text or a number"
        raise bad_request(f"{name!r} is {shown(value)}; it must be {accepted}.", name, "invalid_value")
    return None if value is None else str(value)


@lru_cache(maxsize=128)
def _frame(message: bytes) -> bytes:
    """Subscribers with equal settings are sent the same bytes."""
    return text_frame(message)
