"""Who gets in: Host, Origin, Sec-Fetch-Site and key, before every route of both ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Server, http, raw_request, serving, status_of

from neuroscope.errors import ConfigError
from neuroscope.server.gate import is_loopback, policy, refuse_open_bind

EVERYWHERE = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/features/stream"),
    ("GET", "/v1/features/labels"),
    ("GET", "/nowhere"),
    ("BREW", "/"),
    ("GET", "/v1/features/ws"),
    ("POST", "/v1/features/ticket"),
    ("OPTIONS", "/v1/models"),
]


def status_with_host(server: Server, host: str | None, port: int | None = None) -> int:
    header = "" if host is None else f"Host: {host}\r\n"
    version = "1.0" if host is None else "1.1"
    request = f"GET /healthz HTTP/{version}\r\n{header}Connection: close\r\n\r\n"
    return status_of(raw_request(port or server.port, request.encode()))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST", "localhost:1234", "[::1]", "[::1]:8080", "127.0.0.1:99999"],
)
def test_loopback_hosts_are_served_with_and_without_port(server: Server, host: str) -> None:
    assert status_with_host(server, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "localhost:",
            "localhost:x",
            "[::1",
            "::1",
        ),
        *(
            "user@localhost",
            "localhost,evil.example",
            "localhost.",
            "user:pass@localhost:80",
            "[::1]:8081:9",
            "[::]",
            "localh\u00f6st",
            "127.1",
            "0.0.0.0",
            "localhost/",
            "[::ffff:127.0.0.1]",
            "",
        ),
        None,
    ],
)
def test_other_hosts_are_refused(server: Server, host: str | None) -> None:
    for port in (server.port, server.features_port):
        assert status_with_host(server, host, port) == 403


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/healthz", 200),
        ("http://[::1]:8081/healthz?a=b", 200),
        ("http://evil.example/healthz", 403),
        ("http://user@localhost/healthz", 403),
        ("http://localhost.evil.example/healthz", 403),
        ("http:///healthz", 403),
        ("https://evil.example", 403),
        ("//evil.example/healthz", 404),
        ("/healthz?http://evil.example/", 200),
    ],
)
def test_a_host_in_the_request_line_is_checked_too(server: Server, target: str, status: int) -> None:
    for port in (server.port, server.features_port):
        request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert status_of(raw_request(port, request.encode())) == status


def test_a_request_for_a_tunnel_is_refused(server: Server) -> None:
    for target, status in (("evil.example:80", 403), ("localhost:80", 404)):
        request = f"CONNECT {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert status_of(raw_request(server.port, request.encode())) == status


def test_two_host_headers_are_refused(server: Server) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert status_of(raw_request(server.port, request)) in (400, 403)


@pytest.mark.parametrize(("method", "path"), EVERYWHERE)
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "host_not_allowed"),
        ({"Origin": "https://evil.example"}, "origin_not_allowed"),
        ({"Origin": "null"}, "origin_not_allowed"),
        ({"Origin": ""}, "origin_not_allowed"),
        ({"Sec-Fetch-Site": "cross-site"}, "cross_site_request"),
        ({"Sec-Fetch-Site": "anything"}, "cross_site_request"),
    ],
    ids=str,
)
def test_the_gate_stands_before_every_route_and_method(
    server: Server, method: str, path: str, headers: dict[str, str], code: str
) -> None:
    for base in (server.chat_url, server.features_url):
        response = http.request(method, base + path, headers=headers)
        assert response.status_code == 403
        assert response.json()["error"]["code"] == code
        assert response.json()["error"]["type"] == "permission_error"
        assert "access-control-allow-origin" not in response.headers
        assert response.headers["vary"] == "Origin"


def test_the_servers_own_pages_may_call_both_ports(server: Server) -> None:
    for origin_port in (server.port, server.features_port):
        for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
            origin = f"http://{name}:{origin_port}"
            for url in (f"{server.chat_url}/v1/models", f"{server.features_url}/nowhere"):
                response = http.get(url, headers={"Origin": origin, "Sec-Fetch-Site": "cross-site"})
                assert response.headers["access-control-allow-origin"] == origin
                assert response.headers["vary"] == "Origin"
                assert "access-control-allow-credentials" not in response.headers


def test_origins_are_compared_exactly(server: Server) -> None:
    port = server.features_port
    for origin in (
        f"https://localhost:{port}",
        "http://localhost",
        f"http://localhost:{port}/",
        f"http://localhost:{port}.evil",
    ):
        assert http.get(f"{server.chat_url}/v1/models", headers={"Origin": origin}).status_code == 403


def test_cors_headers_stand_on_streams_too(server: Server) -> None:
    origin = f"http://localhost:{server.features_port}"
    with http.stream(
        "GET", f"{server.features_url}/v1/features/stream", headers={"Origin": origin}
    ) as response:
        assert response.headers["access-control-allow-origin"] == origin


def test_a_preflight_is_answered_and_echoes_the_headers_asked_for(server: Server) -> None:
    response = http.options(
        f"{server.chat_url}/v1/chat/completions",
        headers={
            "Origin": f"http://localhost:{server.features_port}",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang,x-stainless-os",
        },
    )
    assert response.status_code == 204
    assert response.headers["access-control-allow-headers"] == (
        "authorization,content-type,x-stainless-lang,x-stainless-os"
    )
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.content == b""


def test_what_the_browser_calls_its_own_passes_and_cannot_be_loaded_elsewhere(server: Server) -> None:
    """A page of another port of this machine is same-site: it may send, and cannot read."""
    for site in ("same-origin", "same-site", "none"):
        response = server.get("/v1/features/labels", headers={"Sec-Fetch-Site": site})
        assert response.status_code == 200
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in response.headers


def test_the_private_network_header_is_sent_only_when_asked_for(server: Server) -> None:
    headers = {
        "Origin": f"http://localhost:{server.features_port}",
        "Access-Control-Request-Method": "GET",
    }
    name = "access-control-allow-private-network"
    assert name not in http.options(f"{server.chat_url}/v1/models", headers=headers).headers
    headers["Access-Control-Request-Private-Network"] = "true"
    assert http.options(f"{server.chat_url}/v1/models", headers=headers).headers[name] == "true"


def test_another_sites_link_opens_the_page_and_nothing_else(server: Server) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    page = server.get("/", headers=link)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert server.get("/v1/features/labels", headers=link).status_code == 403
    assert server.get("/", headers={**link, "Sec-Fetch-Dest": "iframe"}).status_code == 403


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("keyed")
    # The key's last byte is A0, which is a blank where headers are read as Latin-1.
    env = {"MY_KEY": "kéy-à", "NEUROSCOPE_ALLOWED_HOSTS": "box.example, other.example"}
    settings = {"api_key_env": "MY_KEY", "allowed_origins": ["https://ui.example"]}
    with serving(folder, env=env, serve=settings) as running:
        yield running


@pytest.mark.parametrize(("method", "path"), EVERYWHERE)
def test_a_key_is_asked_for_everywhere(keyed: Server, method: str, path: str) -> None:
    for base in (keyed.chat_url, keyed.features_url):
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic kéy-à"},
            {"Authorization": "kéy-à"},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer kéy-à,Bearer kéy-à"},
            {"X-Api-Key": "kéy-à"},
            {"Api-Key": "kéy-à"},
            {"Cookie": "key=kéy-à"},
        ):
            response = http.request(method, base + path, headers={k: v.encode() for k, v in headers.items()})
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert "kéy" not in response.text


def test_the_right_key_opens_both_ports(keyed: Server) -> None:
    headers = {"Authorization": "bearer  kéy-à".encode()}
    for url in (f"{keyed.chat_url}/v1/models", f"{keyed.features_url}/v1/features/labels"):
        assert http.get(url, headers=headers).status_code == 200


def test_a_preflight_needs_no_key(keyed: Server) -> None:
    headers = {"Origin": "https://ui.example", "Access-Control-Request-Method": "GET"}
    response = http.options(f"{keyed.features_url}/v1/features/stream", headers=headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "https://ui.example"


def test_configured_hosts_and_origins_are_let_in(keyed: Server) -> None:
    headers = {"Authorization": "Bearer kéy-à".encode(), "Host": b"Other.example:9"}
    assert http.get(f"{keyed.chat_url}/healthz", headers=headers).status_code == 200
    headers["Origin"] = f"http://box.example:{keyed.features_port}".encode()
    assert http.get(f"{keyed.chat_url}/healthz", headers=headers).status_code == 200


def test_the_key_is_in_no_output(keyed: Server) -> None:
    assert "kéy" not in keyed.output
    assert 'Authorization: Bearer $MY_KEY"' in keyed.output


def test_an_address_others_can_reach_needs_a_key() -> None:
    refuse_open_bind(["127.0.0.1", "::1"], None, "KEY")
    refuse_open_bind(["0.0.0.0"], "secret", "KEY")
    for address in ("0.0.0.0", "::", "192.168.1.5", "box.example"):
        with pytest.raises(
            ConfigError, match=r"no key is set\. Set KEY to a secret .* or bind to 127\.0\.0\.1"
        ):
            refuse_open_bind([address], None, "KEY")


def test_loopback_is_recognised() -> None:
    assert [is_loopback(a) for a in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]")] == [True] * 5
    assert [is_loopback(a) for a in ("0.0.0.0", "::", "10.0.0.1", "example.org", "")] == [False] * 5


def test_an_origin_is_known_without_its_schemes_own_port() -> None:
    given = ["https://a.example:443", "http://b.example:80", "https://c.example:80", "http://d.example:4430"]
    origins = policy([80, 8081], origins=given).origins
    assert {
        "https://a.example",
        "http://b.example",
        "https://c.example:80",
        "http://d.example:4430",
    } <= origins
    assert {"http://localhost", "http://localhost:8081"} <= origins


def test_a_policy_does_not_show_its_key() -> None:
    assert "secret" not in repr(policy([1], key="secret"))
