"""A full queue is said at once: before the request is read as JSON, routed or checked.

Two hundred clients that come together must all hear within a tenth of a second, which the whole way through Flask
does not leave time for. What is wrong with a refused request is said when there is room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from neuroscope.server.body import read_bounded
from neuroscope.server.inference import queue_full
from neuroscope.server.note import note_route
from neuroscope.server.problems import Problem

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class RefuseWhenFull:
    """WSGI middleware: answers POSTs to `paths` with 429 while `is_full()`. `app` does so too, later."""

    def __init__(self, app: WSGIApplication, paths: Collection[str], is_full: Callable[[], bool]) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._is_full = is_full

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST" or environ["PATH_INFO"] not in self._paths:
            return self._app(environ, start_response)
        if not self._is_full():
            return self._app(environ, start_response)
        note_route(environ["PATH_INFO"])
        try:
            read_bounded(environ)  # closing a connection with unread bytes would take the answer back
        except Problem as problem:
            return problem.answer(start_response)
        return queue_full().answer(start_response)
