"""WSGI middleware around everything: gives each request its id, and tells of it in the log and the metrics.

The log line has the path without its query, which may hold a ticket, and nothing of headers or bodies.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import gevent

from neuroscope.server import note as requests
from neuroscope.server.note import RequestNote

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from neuroscope.server.metrics import Metrics

log = logging.getLogger(__name__)

LONGEST_PATH = 200
LONGEST_METHOD = 20
SWITCHING_PROTOCOLS = 101


class Observed:
    """Wraps `app`. What it raises is observed and raised."""

    def __init__(self, app: WSGIApplication, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        note = RequestNote(
            f"req_{secrets.token_hex(12)}",
            environ["REQUEST_METHOD"][:LONGEST_METHOD],
            _path(environ.get("PATH_INFO", "")),
        )
        environ["neuroscope.request_id"] = note.request_id
        requests.begin(note)
        answering = _Answering(note, self._metrics)

        def start(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            note.status = int(status[:3])
            return start_response(status, headers, exc_info)

        try:
            answering.body = self._app(environ, start)
        except StopIteration:  # how a WebSocket that has ended leaves gunicorn: the handshake was its answer
            note.status = note.status or SWITCHING_PROTOCOLS
            answering.is_whole = True
            answering.over()
            raise
        except BaseException:
            note.status = note.status or 500
            answering.over()
            raise
        return answering


class _Answering:
    """The body of one answer: counts its bytes, and tells of the request when it is closed."""

    def __init__(self, note: RequestNote, metrics: Metrics) -> None:
        self.body: Iterable[bytes] = ()
        self.is_whole = False
        self._note = note
        self._metrics = metrics
        self._started = time.perf_counter()
        self._bytes = 0
        self._is_over = False
        metrics.open_requests += 1

    def __iter__(self) -> Iterator[bytes]:
        for block in self.body:
            self._bytes += len(block)
            yield block
        self.is_whole = True

    def close(self) -> None:
        try:
            close = getattr(self.body, "close", None)
            if close is not None:
                close()
        finally:
            self.over()

    def over(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._metrics.open_requests -= 1
        seconds = time.perf_counter() - self._started
        self._metrics.answered(self._note, seconds)
        gevent.spawn(self._tell, seconds)  # after whatever else is to be answered now
        requests.end()

    def _tell(self, seconds: float) -> None:
        note, answer = self._note, self._note.answer
        size = self._bytes + note.bytes_past
        told: dict[str, Any] = {
            "method": note.method,
            "path": note.path,
            "route": note.route,
            "status": note.status,
            "seconds": round(seconds, 4),
            "bytes": size,
            "request_id": note.request_id,
        }
        words = f"{note.method} {note.path} {note.status} {seconds:.3f} s, {size} bytes"
        if not self.is_whole:
            told["cut_off"] = True
            words += ", cut off"
        if answer is not None:
            told |= {"completion_id": answer.completion_id, "tokens": answer.total_tokens}
            words += f", {answer.completion_id}: {answer.total_tokens} tokens"
        if note.code is not None:
            told["code"] = note.code
            words += f", {note.code}"
        log.info("%s", words, extra=told)


def _path(path: str) -> str:
    """Cut short; WSGI's bytes-in-latin-1 are read as the UTF-8 they mostly are."""
    text = path.encode("latin-1", "replace").decode("utf-8", "replace")
    return text if len(text) <= LONGEST_PATH else f"{text[:LONGEST_PATH]}..."
