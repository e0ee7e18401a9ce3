"""What went wrong between us and the server, as errors for the person at the keyboard.

The server's own `error.message` is shown as it is; what only its user can know (which port, which key) is added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from neuroscope.errors import NoServerError, ServerError

MAX_SHOWN = 2000
LOADING = ("loading", "engine_restarting")
"""Codes of refusals that pass by themselves."""


@contextmanager
def told(place: str, silence_s: float) -> Iterator[None]:
    """Turns what the HTTP library raises inside into errors about the server at `place`."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise NoServerError(
            f"No server at {place} ({_reason(error)}). Start one with `neuroscope serve`, or say where it is "
            "with --host, --port and --features-port."
        ) from error
    except httpx2.ReadTimeout as error:
        raise ServerError(f"The server at {place} gave no sign of life for {silence_s:g} s.") from error
    except httpx2.RemoteProtocolError as error:
        raise _unread(error, place) from error
    except httpx2.TransportError as error:
        raise ServerError(f"The connection to {place} broke ({_reason(error)}).") from error


def refusal(
    response: httpx2.Response, body: bytes, place: str, key_variable: str, has_key: bool
) -> ServerError:
    """The error that a response with another status than 2xx is."""
    status = response.status_code
    found = _object(body).get("error")
    if not isinstance(found, dict) or not isinstance(found.get("message"), str):
        return not_ours(response, place)
    if status == 401 and found.get("code") == "invalid_api_key":
        message = (
            f"The server at {place} does not take the key in {key_variable}: set it to the one it was started with."
            if has_key
            else f"The server at {place} asks for a key: set {key_variable} to the one it was started with."
        )
    else:
        message = plain(found["message"])
    return _error(message, found, status, _whole(response.headers.get("retry-after")))


def late_failure(found: Any, place: str) -> ServerError:
    """The error that an answer ended with after it had begun."""
    if not isinstance(found, dict) or not isinstance(found.get("message"), str):
        return ServerError(f"The server at {place} failed without saying why; its log says more.")
    return _error(plain(found["message"]), found, None, None)


def not_ours(response: httpx2.Response, place: str) -> ServerError:
    """The error about something else that listens there."""
    kind = plain(response.headers.get("content-type", "")) or "no content type"
    return ServerError(
        f"What answers at {place} is not a Neuroscope server: {response.request.method} "
        f"{response.url.path} got {response.status_code} with {kind}. Say where it is with --host, --port and "
        "--features-port.",
        code="not_ours",
        status=response.status_code,
    )


def plain(text: str) -> str:
    """Somebody else's sentence without what steers a terminal, and cut short."""
    kept = text[:MAX_SHOWN] + ("..." if len(text) > MAX_SHOWN else "")
    return " ".join("".join(c if c.isprintable() else " " for c in kept).split())


def _error(message: str, found: dict[str, Any], status: int | None, retry_after_s: int | None) -> ServerError:
    code = found.get("code")
    return ServerError(
        message, status=status, code=code if isinstance(code, str) else None, retry_after_s=retry_after_s
    )


def _unread(error: httpx2.RemoteProtocolError, place: str) -> ServerError:
    said = str(error)
    if "peer closed connection" in said or "incomplete" in said:
        return ServerError(f"The server at {place} broke off in the middle of its answer. Its log says why.")
    if "without sending a response" in said:
        return ServerError(
            f"{place} closed the connection without an answer: it is ending, or no Neuroscope server."
        )
    return ServerError(
        f"What answers at {place} is not a Neuroscope server: it does not speak HTTP ({plain(said)}). Say where it "
        "is with --host, --port and --features-port.",
        code="not_ours",
    )


def _reason(error: Exception) -> str:
    """`Connection refused` of `[Errno 111] Connection refused`."""
    return plain(str(error).rpartition("] ")[2]) or type(error).__name__


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else None
