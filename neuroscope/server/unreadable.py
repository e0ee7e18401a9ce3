"""What gunicorn refuses by itself, before there is a request to hand over, in the shape of every other refusal.

A request line or header that is no HTTP, one that is too long, a transfer coding that nobody knows. What is
refused after that is the gate's and the routes' business.
"""

from __future__ import annotations

import secrets
import socket
from http import HTTPStatus
from typing import Any

from gunicorn import util

from neuroscope.server import wire
from neuroscope.server.problems import Problem

LONGEST_REASON = 200


def answer_in_json() -> None:
    """Have this process's gunicorn write its own refusals as JSON. It has no setting for that."""
    util.write_error = _write


def _write(client: socket.socket, status: int, reason: str, message: str) -> None:
    """As `gunicorn.util.write_error`, which writes a page of HTML."""
    if status == 500:
        problem = Problem(500, "The server failed on this request; its log says why.")
    else:
        why = message if len(message) <= LONGEST_REASON else f"{message[: LONGEST_REASON - 3]}..."
        problem = Problem(status, f"This request cannot be read: {why or reason}")
    body = wire.encode(problem.body())
    headers: list[tuple[str, Any]] = [
        *problem.headers(),
        ("x-request-id", f"req_{secrets.token_hex(12)}"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        ("Content-Length", len(body)),
    ]
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    util.write_nonblock(client, "\r\n".join([*lines, "", ""]).encode("latin-1") + body)
