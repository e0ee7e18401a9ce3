"""A refused or failed request in OpenAI's shape, whichever part of the server refuses it.

`{"error": {"message", "type", "param", "code"}}` with the right status. Clients of this API try again on 408,
409, 429 and 5xx, so what will never work gets another 4xx.
"""

from __future__ import annotations

import re
from typing import Any

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from neuroscope.errors import ArtefactError, ContextOverflowError, PromptError
from neuroscope.server import wire

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_MESSAGE_PLACE = re.compile(r"messages(\[\d+\](\.\w+(\[\d+\])?)?)?")  # as `conversation` begins its sentences
CODES = {404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "request_too_large"}


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
    ) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code or CODES.get(status)
        self.retry_after_s = retry_after_s
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
        if self.status == 401:
            headers.append(("WWW-Authenticate", "Bearer"))
        return headers

    def response(self) -> Response:
        return Response(wire.encode(self.body()), self.status, self.headers())


def bad_request(message: str, param: str | None = None, code: str | None = None) -> Problem:
    """What the client must change before it asks again."""
    return Problem(400, message, param=param, code=code)


def from_prompt_error(error: PromptError) -> Problem:
    """A conversation the model cannot take is the client's to change, never a 500."""
    if isinstance(error, ContextOverflowError):
        return bad_request(str(error), "messages", "context_length_exceeded")
    param = _MESSAGE_PLACE.match(str(error))
    return bad_request(str(error), param[0] if param else "messages", "invalid_prompt")


def answer_problems(app: Flask) -> None:
    """Make everything that goes wrong inside `app`, its own 404 and 405 included, answer in this shape."""

    @app.errorhandler(Problem)
    def _problem(problem: Problem) -> Response:
        return problem.response()

    @app.errorhandler(ArtefactError)
    def _artefact(error: ArtefactError) -> Response:
        return Problem(503, str(error), code="results_unreadable").response()

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        status = error.code or 500
        response = Problem(status, _sentence(error)).response()
        if (allowed := getattr(error, "valid_methods", None)) is not None:
            response.headers["Allow"] = ", ".join(sorted(allowed))
        return response


def _sentence(error: HTTPException) -> str:
    if error.code == 500:
        return "The server failed on this request; its log says why. The next request is not affected."
    return error.description or error.name
