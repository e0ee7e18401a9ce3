"""Tickets: what a page opens a stream with, since a browser sends no key there. Once, soon, and unseen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from raw_websocket import PATH as SOCKET
from raw_websocket import RawWebSocket, handshake
from serving import EventStream, Server, http, raw_request, serving, status_of, wait_until

from neuroscope.server.tickets import LIFETIME_S, Tickets, take_tickets

STREAM = "/v1/features/stream"
KEY = {"Authorization": "Bearer secret-key"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_ticket_is_good_once() -> None:
    issued = Tickets()
    one, other = issued.issue(None), issued.issue(None)
    assert one != other
    assert len(one) == 43, "256 bits in base64"
    assert issued.redeem(one, None, "localhost")
    assert not issued.redeem(one, None, "localhost")
    assert issued.redeem(other, "http://any.example", "localhost")
    for wrong in ("", "x", one[:-1], "é\udc80"):
        assert not issued.redeem(wrong, None, "localhost")


def test_a_ticket_is_good_for_a_minute() -> None:
    clock = Clock()
    issued = Tickets(clock)
    early, late = issued.issue(None), issued.issue(None)
    clock.now += LIFETIME_S - 1
    assert issued.redeem(early, None, "localhost")
    clock.now += 1
    assert not issued.redeem(late, None, "localhost")


def test_a_new_ticket_takes_the_place_of_the_expired_and_then_of_the_oldest() -> None:
    clock = Clock()
    issued = Tickets(clock, limit=3)
    first, *_ = [issued.issue(None) for _ in range(3)]
    fourth = issued.issue(None)
    assert len(issued) == 3
    assert not issued.redeem(first, None, "localhost")
    assert issued.redeem(fourth, None, "localhost")
    clock.now += LIFETIME_S
    issued.issue(None)
    assert len(issued) == 1


def test_a_ticket_belongs_to_the_pages_of_its_origin() -> None:
    """A browser names no origin when a page opens a stream of its own server, and always for a WebSocket."""
    issued = Tickets()
    cases: list[tuple[str | None, str, bool]] = [
        ("http://localhost:8081", "127.0.0.1:8081", True),
        ("http://LOCALHOST:8081", "localhost:8081", True),
        (None, "localhost:8081", True),
        (None, "LocalHost:8081", True),
        (None, "127.0.0.1:8081", False),
        ("http://localhost:8080", "localhost:8081", False),
        ("https://localhost:8081", "localhost:8081", False),
    ]
    for origin, host, good in cases:
        assert issued.redeem(issued.issue("http://localhost:8081"), origin, host) is good, (origin, host)


def test_no_ticket_is_held_as_it_is() -> None:
    issued = Tickets()
    ticket = issued.issue(None)
    assert ticket not in repr(vars(issued))


@pytest.mark.parametrize(
    ("query", "found", "left"),
    [
        ("", [], ""),
        ("a=1", [], "a=1"),
        ("ticket=x", ["x"], ""),
        ("a=1&ticket=x%2By&b=%20", ["x+y"], "a=1&b=%20"),
        ("t%69cket=x&TICKET=y", ["x", "y"], ""),
        ("ticket", [], "ticket"),
        ("ticket=&a=ticket", [""], "a=ticket"),
    ],
)
def test_a_query_string_has_no_ticket_after_it_was_taken(query: str, found: list[str], left: str) -> None:
    environ: dict[str, Any] = {"QUERY_STRING": query, "RAW_URI": f"/x?{query}" if query else "/x"}
    assert take_tickets(environ) == found
    assert environ["QUERY_STRING"] == left
    assert environ["RAW_URI"] == (f"/x?{left}" if left else "/x")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {"NEUROSCOPE_API_KEY": "secret-key", "GUNICORN_CMD_ARGS": "--access-logfile - --log-level debug"}
    with serving(tmp_path_factory.mktemp("tickets"), env=env, serve={"ring": 64}) as running:
        yield running
    assert "Traceback" not in running.output
    assert '"GET /v1/features/stream?top_k=2 HTTP/1.1"' in running.output, (
        "requests are logged, tickets are not"
    )
    for ticket in GIVEN_OUT:
        assert ticket not in running.output


GIVEN_OUT: list[str] = []


def ticket_of(server: Server, **more: Any) -> str:
    headers = {**KEY, **more.pop("headers", {})}
    response = http.post(f"{server.features_url}/v1/features/ticket", headers=headers, **more)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    body = response.json()
    assert body.keys() == {"ticket", "expires_in_s"}
    assert body["expires_in_s"] == LIFETIME_S
    GIVEN_OUT.append(body["ticket"])
    return str(body["ticket"])


def status(server: Server, path: str, *, method: str = "GET", port: int | None = None, **headers: str) -> int:
    """The status of a request without a key, and nothing of its body, which may be endless."""
    url = f"http://127.0.0.1:{port or server.features_port}{path}"
    with http.stream(method, url, headers=headers) as response:
        return response.status_code


def test_a_ticket_opens_the_stream_once(keyed: Server) -> None:
    path = f"{STREAM}?top_k=2&ticket={ticket_of(keyed)}"
    with EventStream(keyed.features_port, path) as stream:
        assert stream.status == 200
        next(stream.blocks())
        body = {"messages": [{"role": "user", "content": "one"}]}
        http.post(f"{keyed.chat_url}/v1/chat/completions", json=body, headers=KEY)
        assert stream.until("generation_complete")
    again = keyed.get(path)
    assert again.status_code == 401
    assert again.headers["www-authenticate"] == "Bearer"
    error = again.json()["error"]
    assert error["code"] == "invalid_ticket"
    assert "Ask POST /v1/features/ticket for another." in error["message"]


def test_a_ticket_opens_a_web_socket_once(keyed: Server) -> None:
    path = f"{SOCKET}?ticket={ticket_of(keyed, json={})}"
    with RawWebSocket(keyed.features_port, path) as raw:
        assert next(raw.messages())["event"] == "settings"
    assert status_of(raw_request(keyed.features_port, handshake(keyed.features_port, path))) == 401


def test_a_page_opens_what_it_asked_for_and_no_other_page_does(keyed: Server) -> None:
    page = {"Origin": f"http://localhost:{keyed.features_port}"}
    other = {"Origin": f"http://localhost:{keyed.port}"}
    for asking, opening, good in (
        (page, page, True),
        (page, other, False),
        (other, page, False),
        ({}, other, True),
    ):
        path = f"{STREAM}?ticket={ticket_of(keyed, headers=asking)}"
        assert status(keyed, path, **opening) == (200 if good else 401)
    same_origin = {"Host": f"localhost:{keyed.features_port}", "Sec-Fetch-Site": "same-origin"}
    assert status(keyed, f"{STREAM}?ticket={ticket_of(keyed, headers=page)}", **same_origin) == 200
    foreign = {"Origin": "https://evil.example"}
    path = f"{STREAM}?ticket={ticket_of(keyed)}"
    assert status(keyed, path, **foreign) == 403
    assert status(keyed, path) == 200, "what the gate refused has used nothing up"


def test_a_ticket_opens_nothing_else(keyed: Server) -> None:
    ticket = ticket_of(keyed)
    query = f"?ticket={ticket}"
    for method, path, port in (
        ("HEAD", STREAM, keyed.features_port),
        ("POST", STREAM, keyed.features_port),
        ("OPTIONS", STREAM, keyed.features_port),
        ("GET", "/v1/features/labels", keyed.features_port),
        ("GET", "/v1/features/5", keyed.features_port),
        ("POST", "/v1/features/ticket", keyed.features_port),
        ("GET", f"{STREAM}/", keyed.features_port),
        ("GET", STREAM, keyed.port),
        ("GET", SOCKET, keyed.port),
        ("POST", "/v1/chat/completions", keyed.port),
        ("GET", "/readyz", keyed.port),
    ):
        assert status(keyed, f"{path}{query}", method=method, port=port) == 401, (method, path)
    for wrong in ("?ticket=", "?ticket=wrong", f"{query}&ticket={ticket}", "?tickets=wrong", f"#{query}"):
        assert status(keyed, f"{STREAM}{wrong}") == 401
    for headers in (
        {"Ticket": ticket},
        {"Authorization": f"Bearer {ticket}"},
        {"Cookie": f"ticket={ticket}"},
    ):
        assert status(keyed, STREAM, **headers) == 401
    assert status(keyed, f"{STREAM}{query}") == 200, "and it was not used up by all this"


def test_a_ticket_is_asked_for_with_the_key_and_by_the_rules(keyed: Server) -> None:
    url = f"{keyed.features_url}/v1/features/ticket"
    assert http.post(url).status_code == 401
    assert http.post(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert http.get(url, headers=KEY).status_code == 405
    assert http.post(url, headers={**KEY, "Origin": "https://evil.example"}).status_code == 403
    assert http.post(url, headers=KEY, data={"a": "b"}).status_code == 415
    assert (
        http.post(url, headers={**KEY, "Content-Type": "application/json"}, content=b"[]").status_code == 400
    )
    assert http.post(f"{keyed.chat_url}/v1/features/ticket", headers=KEY).status_code == 404


def test_no_message_shows_a_ticket(keyed: Server) -> None:
    ticket = ticket_of(keyed)
    for path in (f"/nowhere?ticket={ticket}", f"{STREAM}?top_k=0&ticket={ticket}"):
        answer = keyed.get(path, headers=KEY)
        assert ticket not in answer.text
    line = f"GET {STREAM}?ticket={ticket}\r\n\r\n".encode()
    assert status_of(raw_request(keyed.features_port, line)) == 400
    wait_until(lambda: "InvalidRequestLine" in keyed.output, what="gunicorn's line about what is no request")
    assert ticket not in keyed.output


def test_without_a_key_a_page_needs_no_other_code(server: Server) -> None:
    answer = http.post(f"{server.features_url}/v1/features/ticket").json()
    for _ in range(2):
        with EventStream(server.features_port, f"{STREAM}?ticket={answer['ticket']}") as stream:
            assert stream.status == 200
    with RawWebSocket(server.features_port, f"{SOCKET}?ticket=whatever") as raw:
        assert json.loads(next(raw.frames())[1])["event"] == "settings"
