"""What is known about the request that a greenlet is answering: for its log lines and for the metrics.

Found through a context variable, so that a refusal deep in a route, or a line in a log, need not be handed the
request. A generation keeps its own reference: its results arrive in another greenlet.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


class Answer(Protocol):
    """What a request had generated."""

    completion_id: str
    total_tokens: int


@dataclass(slots=True)
class RequestNote:
    """Filled in while the request is answered. Nothing here is of the body, the query or the headers."""

    request_id: str
    method: str
    path: str
    route: str | None = None
    """The rule that matched, as `/v1/features/<int:index>`; None when nothing did."""
    status: int = 0
    """0 until the answer begins."""
    code: str | None = None
    """The error's code, when it was refused."""
    answer: Answer | None = None
    bytes_past: int = 0
    """Of the body, written to the socket by others."""


_current: ContextVar[RequestNote | None] = ContextVar("neuroscope_request", default=None)


def begin(note: RequestNote) -> None:
    """`note` is this greenlet's request from now on."""
    _current.set(note)


def end() -> None:
    """The next request of the connection runs in the same greenlet."""
    _current.set(None)


def current() -> RequestNote | None:
    """The request this greenlet answers; None outside of one."""
    return _current.get()


def note_bytes_past(count: int) -> None:
    """So much of the current request's answer was not seen by the middleware."""
    if (note := _current.get()) is not None:
        note.bytes_past = count


def note_code(code: str) -> None:
    """The current request is refused with this error code."""
    if (note := _current.get()) is not None:
        note.code = code


def note_route(route: str) -> None:
    """The current request took this route."""
    if (note := _current.get()) is not None:
        note.route = route


def note_answer(answer: Answer) -> str | None:
    """The current request has this generated. Returns the request's id, for whoever logs about the answer."""
    if (note := _current.get()) is None:
        return None
    note.answer = answer
    return note.request_id
