"""A refused or failed request in OpenAI's shape, whichever part of the server refuses it.

`{"error": {"message", "type", "param", "code"}}` with the right status. Clients of this API try again on 408,
409, 429 and 5xx, so what will never work gets another 4xx.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing.exceptions import WebsocketMismatch

from neuroscope.errors import (
    ArtefactError,
    ContextOverflowError,
    ModelError,
    PromptError,
    SamplingError,
    shown,
)
from neuroscope.server import wire
from neuroscope.server.note import note_code
from neuroscope.settings.commands import with_pairing

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_MESSAGE_PLACE = re.compile(
    r"messages(\[\d+\](\.\w+(\[\d+\](\.\w+)?)?)?)?"
)  # as `conversation` begins its sentences
RETRY_AFTER_S = 5
"""Where nothing better is known about when it is worth asking again."""
CODES = {408: "timeout", 413: "request_too_large", 414: "uri_too_long"}
"""Where the code is not the status in words: `not_found`, `internal_server_error`."""


class Problem(Exception):
    """Why a request is not served. Raised by any view; once a stream has begun, `body()` is sent in it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
        should_retry: bool = True,
    ) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code or CODES.get(status) or HTTPStatus(status).name.lower()
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry
        """False tells OpenAI's clients not to send the same again, as they do after any 5xx."""
        super().__init__(message)

    @property
    def type(self) -> str:
        return TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        return {
            "error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code},
        }

    def headers(self) -> list[tuple[str, str]]:
        headers = [("Content-Type", "application/json")]
        if self.retry_after_s is not None:
            headers.append(("Retry-After", str(self.retry_after_s)))
        if not self.should_retry:
            headers.append(("x-should-retry", "false"))
        if self.status == 401:
            headers.append(("WWW-Authenticate", "Bearer"))
        if self.status == 426:
            headers += [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")]
        return headers

    def answer(self, start_response: Callable[[str, list[tuple[str, str]]], object]) -> list[bytes]:
        """The response of a WSGI application."""
        note_code(self.code)
        body = wire.encode(self.body())
        headers = [*self.headers(), ("Content-Length", str(len(body)))]
        start_response(f"{self.status} {HTTPStatus(self.status).phrase}", headers)
        return [body]

    def response(self) -> Response:
        note_code(self.code)
        return Response(wire.encode(self.body()), self.status, self.headers())


def bad_request(message: str, param: str | None = None, code: str | None = None) -> Problem:
    """What the client must change before it asks again."""
    return Problem(400, message, param=param, code=code)


def wrong(name: str, value: object, accepted: str) -> Problem:
    """The field or parameter `name` is not what it may be."""
    return bad_request(f"{name!r} is {shown(value)}; it must be {accepted}.", name, "invalid_value")


def shutting_down() -> Problem:
    return Problem(503, "The server is shutting down.", code="shutdown", retry_after_s=RETRY_AFTER_S)


def given_up(what: str) -> Problem:
    """For whoever still reads, after the client closed its connection."""
    return Problem(503, f"The {what} was given up: the client closed its connection.", code="cancelled")


def from_prompt_error(error: PromptError, prompt: str, limit: str = "max_tokens") -> Problem:
    """A conversation the model cannot take is the client's to change, never a 500.

    `prompt` and `limit` are the fields that hold the prompt and the number of tokens asked for.
    """
    if isinstance(error, ContextOverflowError):
        param = prompt if error.prompt_is_too_long else limit
        return bad_request(error.sentence(f"'{prompt}'", f"'{limit}'"), param, "context_length_exceeded")
    if isinstance(error, SamplingError):
        return bad_request(str(error), error.option, "invalid_value")
    place = _MESSAGE_PLACE.match(str(error))
    return bad_request(str(error), place[0] if place and prompt == "messages" else prompt, "invalid_prompt")


def answer_problems(app: Flask, pairing: Callable[[], str]) -> None:
    """Make everything that goes wrong inside `app`, its own 404 and 405 included, answer in this shape.

    `pairing` names what is served, for the commands in messages about its results.
    """

    @app.errorhandler(Problem)
    def _problem(problem: Problem) -> Response:
        return problem.response()

    @app.errorhandler(ArtefactError)
    def _artefact(error: ArtefactError) -> Response:
        return Problem(503, with_pairing(str(error), pairing()), code="results_unreadable").response()

    @app.errorhandler(ModelError)
    def _model(error: ModelError) -> Response:
        return Problem(500, str(error)).response()

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        status = 404 if isinstance(error, WebsocketMismatch) else error.code or 500
        allowed = sorted(getattr(error, "valid_methods", None) or ())
        response = Problem(status, _sentence(app, error, allowed)).response()
        if allowed:
            response.headers["Allow"] = ", ".join(allowed)
        return response


def _sentence(app: Flask, error: HTTPException, allowed: list[str]) -> str:
    if error.code == 500:
        return "The server failed on this request; its log says why. The next request is not affected."
    if isinstance(error, WebsocketMismatch):
        return (
            f"There is no WebSocket at {shown(request.path)}; the features port has one at /v1/features/ws."
        )
    if error.code == 404:
        known = ", ".join(sorted({rule.rule for rule in app.url_map.iter_rules() if not rule.arguments}))
        return f"There is no {shown(request.path)} on this port. It has {known}."
    if error.code == 405:
        return f"{shown(request.path)} takes {', '.join(allowed)} and not {request.method[:20]}."
    return error.description or error.name
