"""The two ports: free, the project's own server, or somebody else's."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from dataclasses import dataclass
from typing import Any

from neuroscope.doctor.check import Check

SECONDS = 2.0
LARGEST = 1 << 20
"""Bytes of an answer that are read: another program may send without an end."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Port:
    """What is at a port: `free`, `ours`, `taken`, or `closed` to us for the reason in `words`."""

    number: int
    state: str
    words: str
    status: str = ""
    """Of a server of ours: ready, degraded, loading and so on."""
    model: str = ""


def look_at_port(host: str, number: int, key: str | None = None) -> Port:
    """Asks whoever listens there for /readyz. The key is sent only to what already answered as our server does."""
    port = _to_listen(host, number)
    if port.state != "taken":
        return port
    try:
        status, headers, body = _ask(host, number, None)
        if status == 401 and headers.get("x-request-id", "").startswith("req_") and key:
            status, headers, body = _ask(host, number, key)
    except (OSError, http.client.HTTPException) as error:
        return Port(
            number, "taken", f"another program listens and does not speak HTTP ({type(error).__name__})"
        )
    found = _object(body)
    if status == 401 and headers.get("x-request-id", "").startswith("req_"):
        return Port(number, "ours", "a server that asks for a key, probably this project's", "needs a key")
    if found is not None and isinstance(found.get("status"), str) and ("sae" in found or "stage" in found):
        state, model = str(found["status"]), found.get("model")
        about = f", model {model}" if isinstance(model, str) else ""
        return Port(number, "ours", f"this project's server: {state}{about}", state, str(model or ""))
    return Port(number, "taken", f"another program answers there (HTTP {status})")


def _ask(host: str, number: int, key: str | None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(EVERYWHERE.get(host, host), number, timeout=SECONDS)
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", "/readyz", headers=headers)
        answer = connection.getresponse()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            answer.read(LARGEST),
        )
    finally:
        connection.close()


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _to_listen(host: str, number: int) -> Port:
    """Whether the server could listen there, tried as gunicorn does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, number))
            trial.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Port(number, "taken", "another program holds it")
        if error.errno in (errno.EACCES, errno.EPERM):
            return Port(number, "closed", "reserved for the system's own services")
        return Port(number, "closed", f"cannot be opened on {host} ({error.strerror or error})")
    return Port(number, "free", "free")


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody holds at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = [socket.socket(family, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for trial in held:
            trial.bind((host, 0))
        return [int(trial.getsockname()[1]) for trial in held]
    finally:
        for trial in held:
            trial.close()


def port_checks(host: str, chat: Port, features: Port) -> list[Check]:
    """A line for each port."""
    return [
        _check(f"{what} port", host, port, chat, features)
        for what, port in (("chat", chat), ("features", features))
    ]


def _check(name: str, host: str, port: Port, chat: Port, features: Port) -> Check:
    found = f"{port.number}: {port.words}"
    if port.state == "free":
        return Check(name, "ok", found)
    if port.state == "ours":
        status = "ok" if port.status in ("ready", "needs a key") else "note"
        wanted = "" if status == "ok" else f"curl http://{host}:{port.number}/readyz says why"
        return Check(name, "ok" if status == "ok" else "note", found, wanted)
    return Check(name, "problem", found, "a free port", _elsewhere(host, chat, features))


def _elsewhere(host: str, chat: Port, features: Port) -> str:
    try:
        others = free_ports(host, 2)
    except OSError:
        return "neuroscope serve --host 127.0.0.1"
    flags = zip(("--port", "--features-port"), (chat, features), others, strict=True)
    words = [f"{flag} {other}" for flag, port, other in flags if port.state not in ("free", "ours")]
    return f"neuroscope serve {' '.join(words)}"


def key_of(variable: str) -> str | None:
    """The server's key, as its clients send it."""
    return os.environ.get(variable) or None
