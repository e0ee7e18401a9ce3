"""Every route, method, error and handshake of both ports stands behind the gate: the applications name their routes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from email.message import Message
from http.client import HTTPConnection

import pytest
from raw_websocket import PATH
from serving import EventStream, Server, serving, status_of, wait_until

from neuroscope import settings
from neuroscope.ranking import Ranking
from neuroscope.server.chat import create_chat_app
from neuroscope.server.features import create_features_app
from neuroscope.server.page_paths import is_public
from neuroscope.server.service import Service

KEY = "kéy-of-the-test"
BEARER = {"Authorization": f"Bearer {KEY}"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW")
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
REFUSED: dict[str, tuple[Mapping[str, str | bytes], int, str]] = {
    "host": ({**BEARER, "Host": "evil.example"}, 403, "host_not_allowed"),
    "rebound host": ({**BEARER, "Host": "127.0.0.1.evil.example:8081"}, 403, "host_not_allowed"),
    "origin": ({**BEARER, "Origin": "https://evil.example"}, 403, "origin_not_allowed"),
    "null origin": ({**BEARER, "Origin": "null"}, 403, "origin_not_allowed"),
    "cross-site": ({**BEARER, "Sec-Fetch-Site": "cross-site"}, 403, "cross_site_request"),
    "no key": ({}, 401, "invalid_api_key"),
    "wrong key": ({"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
    "key in other bytes": ({"Authorization": b"Bearer k\xe9y-of-the-test"}, 401, "invalid_api_key"),
    "bytes that are no text": ({"Authorization": b"Bearer \xff\xfe\x80"}, 401, "invalid_api_key"),
}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("everywhere"), env={"NEUROSCOPE_API_KEY": KEY}) as running:
        yield running
    assert "Traceback" not in running.output
    assert "no-body response" not in running.output, "an answer to HEAD has no body"
    assert KEY not in running.output


def paths() -> list[tuple[str, str]]:
    """Port and path of every route there is, and one of none."""
    service = Service(settings.load().serve, Ranking())
    apps = {"port": create_chat_app(service), "features_port": create_features_app(service, chat_port=8080)}
    found = {(port, rule.rule) for port, app in apps.items() for rule in app.url_map.iter_rules()}
    values = {
        "<int:index>": "5",
        "<path:model>": "a/b",
        "static/<name>": "static/base.css",
        "<name>": "a-b",
        "<session:id>": "a-b",
    }
    filled = {(port, _filled(path, values)) for port, path in found}
    assert not [path for _, path in filled if "<" in path], "a new kind of variable needs a value here"
    assert {("features_port", PATH), ("port", "/v1/chat/completions")} <= filled
    return sorted(filled | {("port", "/nowhere"), ("features_port", "/nowhere")})


def _filled(path: str, values: Mapping[str, str]) -> str:
    for variable, value in values.items():
        path = path.replace(variable, value)
    return path


class Asker:
    """One connection that is kept for every question."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, headers: Mapping[str, str | bytes]
    ) -> tuple[int, Message, bytes, str]:
        """Status, headers, body, and the question for messages."""
        self._connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            self._connection.putheader(name, value.encode() if isinstance(value, str) else value)
        self._connection.endheaders()
        with self._connection.getresponse() as response:
            return response.status, response.headers, response.read(), f"{method} {path}: {response.status}"


def is_open(port: str, path: str, method: str) -> bool:
    """Pages and their files, which hold no data: a browser cannot send a key when it opens one."""
    return port == "features_port" and is_public(path) and method in ("GET", "HEAD")


def test_pages_open_without_a_key_and_nothing_else_does(keyed: Server) -> None:
    opened = {path for port, path in paths() if is_open(port, path, "GET")}
    assert opened == {
        "/",
        "/features",
        "/feature/5",
        "/sessions",
        "/session/a-b",
        "/diff",
        "/static/base.css",
    }
    for path in opened:
        page = keyed.get(path)
        assert page.status_code == 200, path
        assert KEY not in page.text
        with Asker(keyed.port) as chat:
            assert chat.ask("GET", path, {})[0] == 401, "the chat's port has no pages"


def newest(server: Server) -> str | None:
    with EventStream(server.features_port, headers=BEARER) as stream:
        return next(stream.blocks()).id


@pytest.mark.parametrize("refused", REFUSED)
def test_nothing_is_reached_without_permission(keyed: Server, refused: str) -> None:
    refusing, status, code = REFUSED[refused]
    before = newest(keyed)
    for port, path in paths():
        with Asker(getattr(keyed, port)) as asker:
            for method, more in (*((method, {}) for method in METHODS), ("GET", UPGRADE)):
                if status == 401 and is_open(port, path, method):
                    continue
                found, headers, body, where = asker.ask(method, path, {**more, **refusing})
                assert found == status, where
                assert headers["content-type"] == "application/json", where
                assert headers["x-request-id"], where
                assert headers["vary"] == "Origin", where
                assert "access-control-allow-origin" not in headers, where
                if method == "HEAD":
                    assert body == b"", where
                    continue
                assert int(headers["content-length"]) == len(body), where
                (error,) = json.loads(body).values()
                assert set(error) == {"message", "type", "param", "code"}, where
                assert error["code"] == code, where
                assert KEY not in error["message"], where
    assert newest(keyed) == before, "nothing was generated"
    wait_until(lambda: subscribers(keyed) == 0, what="no stream to have been opened")


def subscribers(server: Server) -> int:
    headers = {"Authorization": BEARER["Authorization"].encode()}
    return int(server.get("/readyz", headers=headers).json()["subscribers"])


def test_an_allowed_page_can_read_every_answer_refusals_among_them(keyed: Server) -> None:
    origin = {"Origin": f"http://localhost:{keyed.features_port}"}
    endless = (PATH, "/v1/features/stream")
    for port, path in paths():
        with Asker(getattr(keyed, port)) as asker:
            for method in METHODS:
                for asked in (origin, {**origin, **BEARER}):
                    if "Authorization" in asked and method == "GET" and path in endless:
                        continue
                    status, headers, _, where = asker.ask(method, path, asked)
                    is_refused = "Authorization" not in asked and not is_open(port, path, method)
                    assert (status == 401) == is_refused, where
                    assert headers["access-control-allow-origin"] == origin["Origin"], where
                    exposed = headers["access-control-expose-headers"]
                    assert exposed == "x-request-id, Retry-After, x-should-retry", where
                    assert "access-control-allow-credentials" not in headers, where
                    assert headers.get_all("vary") in (["Origin"], ["Accept-Encoding", "Origin"]), where


def test_streams_and_handshakes_say_so_too(keyed: Server) -> None:
    origin = f"http://localhost:{keyed.features_port}"
    with EventStream(keyed.features_port, headers={"Origin": origin, **BEARER}) as stream:
        assert stream.status == 200
        assert stream.headers["access-control-allow-origin"] == origin
    for query, status in (("?top_k=0", 400), ("", 101)):
        headers = {"Host": "localhost", "Origin": origin, **UPGRADE, **BEARER}
        lines = [f"GET {PATH}{query} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        with socket.create_connection(("127.0.0.1", keyed.features_port), timeout=60) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            answer = connection.recv(4096)
        assert status_of(answer) == status
        assert f"Access-Control-Allow-Origin: {origin}".encode() in answer
