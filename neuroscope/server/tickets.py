"""Tickets for browsers, whose EventSource and WebSocket cannot send a key: each opens one stream, soon.

A ticket stands in a URL, where it may be seen, so it is good for one connection and a minute, and it is hidden
from every log. Who may ask for one, and that a key is asked for otherwise, is the gate's business.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

PARAMETER = "ticket"
PATHS = ("/v1/features/stream", "/v1/features/ws")
"""What a ticket opens, by GET."""
LIFETIME_S = 60
LIMIT = 1024
"""Tickets kept at once; a new one then takes the place of the oldest."""


@dataclass(frozen=True, slots=True)
class _Issued:
    until: float
    origin: str | None


class Tickets:
    """Those that are out. Held as hashes, so that neither a look at the memory nor the time of a search tells one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._issued: dict[bytes, _Issued] = {}

    def __len__(self) -> int:
        return len(self._issued)

    def issue(self, origin: str | None) -> str:
        """A new ticket. With an `origin` it opens streams for that origin's pages only."""
        now = self._clock()
        self._issued = {h: issued for h, issued in self._issued.items() if issued.until > now}
        while len(self._issued) >= self._limit:
            del self._issued[next(iter(self._issued))]
        ticket = secrets.token_urlsafe(32)
        self._issued[_hash(ticket)] = _Issued(now + LIFETIME_S, origin.lower() if origin else None)
        return ticket

    def redeem(self, ticket: str, origin: str | None, host: str) -> bool:
        """Whether `ticket` opens a stream for a page of `origin`. It does so once.

        A browser names no origin when a page asks its own server: then the origin is that of the Host.
        """
        key = _hash(ticket)
        issued = self._issued.get(key)
        if issued is None:
            return False
        if issued.origin is not None:
            of_host = issued.origin.partition("://")[2] == host.lower()
            if not (of_host if origin is None else issued.origin == origin.lower()):
                return False
        del self._issued[key]
        return issued.until > self._clock()


def take_tickets(environ: WSGIEnvironment) -> list[str]:
    """The tickets of a request's query string, which has none afterwards: nothing behind this can show them."""
    query = environ.get("QUERY_STRING", "")
    if "=" not in query:
        return []
    kept, tickets = [], []
    for piece in query.split("&"):
        name, _, value = piece.partition("=")
        if unquote_plus(name).lower() == PARAMETER:
            tickets.append(unquote_plus(value))
        else:
            kept.append(piece)
    if tickets:
        environ["QUERY_STRING"] = "&".join(kept)
        path, mark, _ = environ.get("RAW_URI", "").partition("?")
        environ["RAW_URI"] = f"{path}{mark if kept else ''}{environ['QUERY_STRING']}"
    return tickets


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "replace")).digest()
