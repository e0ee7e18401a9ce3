"""The features stream over a WebSocket: the same events from the same ring, each as one JSON message.

A client may change its own settings as it listens. How frames are sent and read is said in `websocket.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gevent
from flask import Blueprint, Flask, g, request
from flask_sock import Sock
from simple_websocket import ConnectionClosed
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from neuroscope.errors import shown
from neuroscope.server import fields, wire
from neuroscope.server.connection import is_plain
from neuroscope.server.fanout import Form
from neuroscope.server.problems import Problem, bad_request, wrong
from neuroscope.server.queries import read_query
from neuroscope.server.service import Service
from neuroscope.server.stream import Entry
from neuroscope.server.subscribers import follow, read_completion_id, read_since, read_start
from neuroscope.server.views import PARAMETERS, View, read_view
from neuroscope.server.websocket import (
    Line,
    check_handshake,
    framed,
    handed_over,
    messages_framed,
    server_options,
)

if TYPE_CHECKING:
    from simple_websocket import Server

PATH = "/v1/features/ws"
SETTINGS = (*PARAMETERS, "completion_id")
"""What a query string may say and a message may change."""


def add_socket(app: Flask, service: Service) -> None:
    """Add the WebSocket to `app`. Whatever is refused is refused as ordinary HTTP, before the handshake."""
    app.config["SOCK_SERVER_OPTIONS"] = server_options(service.serve.heartbeat_s)
    routes = Blueprint("socket", __name__)

    @routes.before_request
    def admit() -> None:
        key = check_handshake(request.environ)
        service.refuse_when_stopping()
        g.subscriber = SocketSubscriber(service, read_query(*SETTINGS, "since"))
        request.environ = handed_over(request.environ, key, g.subscriber.line)

    @routes.teardown_request
    def leave(_error: BaseException | None) -> None:
        if "subscriber" in g:
            g.subscriber.leave()

    @Sock(app).route(PATH, routes)  # type: ignore[untyped-decorator]
    def socket(ws: Server) -> None:
        g.subscriber.converse(ws)

    app.register_blueprint(routes)


class SocketSubscriber:
    """One reader of the stream. Takes a place when it is made, which `leave` gives back. Raises Problem 400, 503."""

    def __init__(self, service: Service, query: Mapping[str, str]) -> None:
        self._service = service
        self._query = {name: query[name] for name in SETTINGS if name in query}
        read_completion_id(self._query)
        self._view = read_view(self._query, service.ranking, service.width)
        since = read_since(service.stream, query)
        self._start = read_start(service.stream, since, self.completion_id)
        self._is_over = False
        self.line = Line(request.environ["gunicorn.socket"], request.environ["neuroscope.headers"], self._end)
        self._seat = service.fanout.seat(self._form)
        if is_plain(request.environ):
            self._seat.outgoing = self.line
        self._give_back = service.subscribers.admit(self._view)

    @property
    def completion_id(self) -> str | None:
        return self._query.get("completion_id")

    def leave(self) -> None:
        self._give_back()

    def converse(self, ws: Server) -> None:
        """Send the stream until the client leaves or the server stops."""
        service, self._ws = self._service, ws
        listening = gevent.spawn(self._listen)
        try:
            identifier = service.stream.identifier(self._start.cursor)
            self._send({"event": "settings", "id": identifier, **self._settings()})
            blocks = follow(
                service.stream,
                self._write,
                self._view,
                self._start,
                self._seat,
                only=lambda: self.completion_id,
                heartbeat_s=service.serve.heartbeat_s,
                is_gone=lambda: self._is_over,
            )
            for block in blocks:
                for message in wire.messages(block):
                    if not ws.connected:
                        return
                    self.line.send(framed(message))
            ws.close(CloseReason.GOING_AWAY, "The server is shutting down.")
        except (ConnectionClosed, LocalProtocolError):
            pass  # it has left
        finally:
            self.line.finish()
            listening.kill()

    def _listen(self) -> None:
        try:
            while True:
                message = self._ws.receive()
                if isinstance(message, bytes):
                    self._ws.close(CloseReason.UNSUPPORTED_DATA, "Only text is understood.")
                elif message is not None:
                    self._hear(message)
        except (ConnectionClosed, LocalProtocolError):
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._seat.wake()

    def _form(self) -> Form:
        return Form(self._view, self.completion_id, messages_framed)

    def _write(self, entry: Entry, _at_first: View) -> bytes:
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
        view = read_view(query, self._service.ranking, self._service.width)
        self._give_back()
        try:
            self._give_back = self._service.subscribers.admit(view)
        except Problem:
            self._give_back = self._service.subscribers.admit(self._view)
            raise
        self._query, self._view = query, view
        self._seat.wake()

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
        self._ws.send(wire.encode(message).decode())


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
    if name == "features" and isinstance(value, list):
        features = [fields.whole(index) for index in value]
        if None not in features:
            return ",".join(map(str, features))
    if isinstance(value, bool | list | dict):
        accepted = "a list of feature numbers" if name == "features" else "a text or a number"
        raise wrong(name, value, accepted)
    number = fields.whole(value)
    if number is not None:
        return str(number)
    return None if value is None else str(value)
