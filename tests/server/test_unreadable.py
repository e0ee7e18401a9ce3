"""What is no HTTP, or not quite: gunicorn's own refusals have the shape of all the others, and nothing hangs."""

from __future__ import annotations

import gzip
import json
import socket

import pytest
from serving import Server, raw_request, status_of

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST


def post(*headers: bytes, body: bytes = b"") -> bytes:
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"Host: localhost", b"Content-Type: application/json"]
    return b"\r\n".join([*lines, *headers, b"", body])


UNREADABLE: list[tuple[bytes, int, str, str]] = [
    (b"GARBAGE\r\n\r\n", 400, "bad_request", "GARBAGE"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 99 + b"\r\n\r\n", 400, "bad_request", "x16"),
    (b"GET /\r\n\r\n", 400, "bad_request", "GET /"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request", "HTTP/2.0"),
    (b"get / HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad_request", "get"),
    (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri_too_long", "too large"),
    (HEALTH + b"X: " + b"y" * 9000 + b"\r\n\r\n", 431, "request_header_fields_too_large", "headers"),
    (HEALTH + b"X y: z\r\n\r\n", 400, "bad_request", "X y"),
    (HEALTH + b"X" * 5000 + b"\r\n\r\n", 400, "bad_request", "XXX"),
    (HEALTH + b"X: a\r\n b\r\n\r\n", 400, "bad_request", "folding"),
    (HEALTH + b"X: a\0b\r\n\r\n", 400, "bad_request", "X"),
    (HEALTH + HOST + b"\r\n", 400, "bad_request", "HOST"),
    (HEALTH + b"Expect: a pony\r\n\r\n", 417, "expectation_failed", "a pony"),
    (post(b"Transfer-Encoding: foo"), 501, "not_implemented", "foo"),
    (post(b"Transfer-Encoding: chunked", b"Content-Length: 5"), 400, "bad_request", "CONTENT-LENGTH"),
    (post(b"Content-Length: -5"), 400, "bad_request", "CONTENT-LENGTH"),
    (post(b"Content-Length: five"), 400, "bad_request", "CONTENT-LENGTH"),
]


@pytest.mark.parametrize(
    ("request_bytes", "status", "code", "found"), UNREADABLE, ids=lambda value: repr(value)[:30]
)
@pytest.mark.parametrize("port", ["port", "features_port"])
def test_what_cannot_be_read_is_refused_in_the_same_shape(
    server: Server, port: str, request_bytes: bytes, status: int, code: str, found: str
) -> None:
    answer = raw_request(getattr(server, port), request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == status
    assert b"\r\nContent-Type: application/json" in head
    assert b"\r\nx-request-id: req_" in head
    assert b"\r\nConnection: close" in head
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"].startswith("This request cannot be read: ")
    assert found in error["message"]
    assert len(error["message"]) < 300
    assert b"<" not in body


def test_a_body_compressed_in_transfer_is_refused_as_such(server: Server) -> None:
    packed = gzip.compress(b"{}")
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    answer = raw_request(server.port, post(b"Transfer-Encoding: gzip, chunked", body=chunks))
    assert status_of(answer) == 415
    assert b"Transfer-Encoding is 'gzip, chunked'; send the body as it is" in answer


def test_requests_sent_at_once_are_answered_in_order_and_refused_bodies_are_not_requests(
    server: Server,
) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    length = b"Content-Length: %d" % len(smuggled)
    nowhere = post(length, body=smuggled).replace(b"/v1/chat/completions", b"/nowhere", 1)
    not_json = post(length, body=smuggled).replace(b"application/json", b"text/plain", 1)
    last = HEALTH + b"Connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(HEALTH + b"\r\n" + nowhere + not_json + last)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, 415, 200]
    assert b"smuggled" not in answer


def test_only_the_head_of_the_stream_is_answered_at_once_and_takes_no_place(server: Server) -> None:
    before = server.get("/readyz").json()["subscribers"]
    head = b"HEAD /v1/features/stream HTTP/1.1\r\n" + HOST + b"\r\n"
    last = HEALTH + b"Connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.features_port), timeout=60) as connection:
        connection.sendall(head + last)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"Content-Type: text/event-stream" in answer
    assert answer.endswith(b'{"status":"ok"}')
    assert server.get("/readyz").json()["subscribers"] == before


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(server: Server) -> None:
    body = b'{"messages": [{"role": "user", "content": "hello"}]}'
    head = post(b"Expect: 100-continue", b"Content-Length: %d" % len(body))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head)
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert status_of(connection.recv(65536)) == 200


def test_an_old_client_gets_whole_answers_and_streams_without_chunks(server: Server) -> None:
    body = b'{"stream": true, "messages": [{"role": "user", "content": "hello"}]}'
    request = post(b"Content-Length: %d" % len(body), body=body).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    answer = raw_request(server.port, request)
    assert answer.startswith(b"HTTP/1.0 200 OK")
    assert b"Transfer-Encoding" not in answer
    assert answer.endswith(b"data: [DONE]\n\n")
