"""Who gets in: one gate before every route, method, 404 and handshake of both ports.

A web page must not be able to talk to a server on its reader's own machine, so the Host is checked against a
list (DNS rebinding), the Origin exactly, and what the browser itself calls cross-site is refused. A bearer
key, when one is set, is asked for everywhere, /healthz not excepted; only a stream may be opened with a ticket
instead, and pages, which hold no data, without. What a request may then do is the routes' business.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuroscope.errors import ConfigError, shown
from neuroscope.server.page_paths import is_page, is_public
from neuroscope.server.problems import Problem
from neuroscope.server.tickets import LIFETIME_S, PATHS, Tickets, take_tickets

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:,/@\s]+))(?::[0-9]{1,5})?")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_BUILT_IN_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),  # another site's page cannot load an answer as a script
    ("Referrer-Policy", "no-referrer"),  # addresses may hold a ticket
    ("Vary", "Origin"),
)
_FETCH_SITES = (None, "same-origin", "same-site", "none")
"""What browsers say of requests that may pass without an Origin. CORP keeps a same-site page from reading them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Who is let in. `key` is None where no key is asked for; no message and no representation shows it."""

    hosts: frozenset[str]
    origins: frozenset[str]
    key: str | None

    def __repr__(self) -> str:
        key = "set" if self.key else None
        return f"Policy(hosts={sorted(self.hosts)}, origins={sorted(self.origins)}, key={key})"


def policy(
    ports: Iterable[int],
    *,
    key: str | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
) -> Policy:
    """Loopback's names and the servers' own origins, and whatever the configuration adds to them."""
    names = {_bare(host) for host in (*LOOPBACK_HOSTS, *hosts)} - {"0.0.0.0", "::"}
    ports = tuple(ports)
    own = {f"http://{f'[{name}]' if ':' in name else name}:{port}" for name in names for port in ports}
    known = {_without_default_port(origin.lower()) for origin in (*own, *origins)}
    return Policy(frozenset(names), frozenset(known), key or None)


def refuse_open_bind(addresses: Iterable[str], key: str | None, key_variable: str) -> None:
    """Raise ConfigError for an address other machines can reach when no key is set."""
    for address in addresses:
        if not is_loopback(address) and not key:
            raise ConfigError(
                f"Binding to {address} lets other machines read every conversation, and no key is set. "
                f"Set {key_variable} to a secret of your own, or bind to 127.0.0.1."
            )


def is_loopback(address: str) -> bool:
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


class Gate:
    """WSGI middleware: lets a request through to `app`, or answers it. CORS headers stand on every answer."""

    def __init__(self, app: WSGIApplication, rules: Policy, tickets: Tickets, streams_port: int) -> None:
        self._app = app
        self._rules = rules
        self._tickets = tickets
        self._streams_port = str(streams_port)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request_id = environ.setdefault("neuroscope.request_id", f"req_{secrets.token_hex(12)}")
        extra = [("x-request-id", request_id), *_BUILT_IN_HEADERS, *self._cors(environ)]
        environ["neuroscope.headers"] = extra  # a handshake is not answered by `start`

        def start(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *extra], exc_info)

        tickets = take_tickets(environ)
        problem = self._problem(environ)
        if problem is None and _is_preflight(environ):
            start("204 No Content", _preflight_headers(environ))
            return []
        problem = problem or self._missing_key(environ, tickets)
        if problem is not None:
            body = problem.answer(start)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else body
        return self._app(environ, start)

    def _cors(self, environ: WSGIEnvironment) -> list[tuple[str, str]]:
        origin = environ.get("HTTP_ORIGIN")
        if origin is None or origin.lower() not in self._rules.origins:
            return []
        return [
            ("Access-Control-Allow-Origin", origin),
            ("Access-Control-Expose-Headers", "x-request-id, Retry-After, x-should-retry"),
        ]

    def _problem(self, environ: WSGIEnvironment) -> Problem | None:
        for host in (environ.get("HTTP_HOST", ""), *_target_hosts(environ)):
            match = _HOST.fullmatch(host.lower())
            if match is None or (match["ipv6"] or match["name"]) not in self._rules.hosts:
                return Problem(
                    403,
                    f"The Host {shown(host)} is not served here. Use 127.0.0.1 or localhost, or list the name "
                    "in NEUROSCOPE_ALLOWED_HOSTS.",
                    code="host_not_allowed",
                )
        origin = environ.get("HTTP_ORIGIN")
        if origin is not None and origin.lower() not in self._rules.origins:
            return Problem(
                403,
                f"Pages from {shown(origin)} may not use this server. "
                "List the origin in serve.allowed_origins.",
                code="origin_not_allowed",
            )
        site = environ.get("HTTP_SEC_FETCH_SITE")
        if origin is None and site not in _FETCH_SITES and not _opens_page(environ):
            return Problem(403, "Another site's page may not use this server.", code="cross_site_request")
        return None

    def _missing_key(self, environ: WSGIEnvironment, tickets: list[str]) -> Problem | None:
        if self._rules.key is None or (not tickets and self._asks_for_a_page(environ)):
            return None
        scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        right = self._rules.key.encode("utf-8", "surrogateescape")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip(" \t").encode("latin-1"), right):
            return None
        if not tickets:
            message = "This server asks for a key: send it as 'Authorization: Bearer KEY'."
            return Problem(401, message, code="invalid_api_key")
        if self._opens_stream(environ) and len(tickets) == 1:
            origin, host = environ.get("HTTP_ORIGIN"), environ["HTTP_HOST"]
            if self._tickets.redeem(tickets[0], origin, host):
                return None
        message = (
            f"This ticket does not open {shown(environ.get('PATH_INFO', ''))}: it is good for one GET of "
            f"{' or '.join(PATHS)} within {LIFETIME_S} s. Ask POST /v1/features/ticket for another."
        )
        return Problem(401, message, code="invalid_ticket")

    def _asks_for_a_page(self, environ: WSGIEnvironment) -> bool:
        return (
            environ["REQUEST_METHOD"] in ("GET", "HEAD")
            and environ["SERVER_PORT"] == self._streams_port
            and is_public(environ.get("PATH_INFO", ""))
        )

    def _opens_stream(self, environ: WSGIEnvironment) -> bool:
        return (
            environ["REQUEST_METHOD"] == "GET"
            and environ.get("PATH_INFO") in PATHS
            and environ["SERVER_PORT"] == self._streams_port
        )


def _bare(host: str) -> str:
    return host.strip().strip("[]").lower()


def _without_default_port(origin: str) -> str:
    """As browsers write it in the header."""
    port = ":80" if origin.startswith("http://") else ":443"
    return origin.removesuffix(port)


def _target_hosts(environ: WSGIEnvironment) -> list[str]:
    """The host in the request line, which only a request to a proxy names: it would overrule the header."""
    target = environ.get("RAW_URI", "")
    if target[:1] in ("", "/", "*"):
        return []
    _, scheme_end, rest = target.partition("://")
    return [re.split(r"[/?#]", rest if scheme_end else target, maxsplit=1)[0]]


def _is_preflight(environ: WSGIEnvironment) -> bool:
    return (
        environ["REQUEST_METHOD"] == "OPTIONS"
        and "HTTP_ORIGIN" in environ
        and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ
    )


def _opens_page(environ: WSGIEnvironment) -> bool:
    """Following another site's link to the page is harmless: the site sends nothing and sees nothing."""
    return (
        environ["REQUEST_METHOD"] == "GET"
        and is_page(environ.get("PATH_INFO", ""))
        and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
        and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    )


def _preflight_headers(environ: WSGIEnvironment) -> list[tuple[str, str]]:
    headers = [
        ("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"),
        ("Access-Control-Max-Age", "600"),
    ]
    asked = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")
    if _HEADER_NAMES.fullmatch(asked):
        headers.append(("Access-Control-Allow-Headers", asked))
    if environ.get("HTTP_ACCESS_CONTROL_REQUEST_PRIVATE_NETWORK") == "true":
        headers.append(("Access-Control-Allow-Private-Network", "true"))
    return headers
