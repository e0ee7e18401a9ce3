"""Several clients at once: in order, within limits, and those that leave give their place up."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from serving import EventStream, Server, http, raw_request, status_of, wait_until

QUEUE = 4  # of the `server` fixture
CHAT = "/v1/chat/completions"


def open_request(server: Server, content: str, *, stream: bool = False, path: str = CHAT) -> socket.socket:
    """Sends a question and does not read the answer."""
    question = {"messages": [{"role": "user", "content": content}]} if path == CHAT else {"prompt": content}
    return open_post(server.port, path, {**question, "stream": stream})


def open_encode(server: Server, text: str) -> socket.socket:
    return open_post(server.features_port, "/v1/features/encode", {"text": text})


def open_post(port: int, path: str, value: dict[str, Any]) -> socket.socket:
    body = json.dumps(value)
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


def occupy(server: Server) -> socket.socket:
    """A request that keeps the model busy until its connection is closed."""
    server.wait_idle()
    connection = open_request(server, "[prefill=300] never")
    wait_until(lambda: queue_of(server)["running"], what="the model to be busy")
    return connection


def queue_of(server: Server) -> dict[str, object]:
    return dict(server.get("/readyz").json()["queue"])


def test_parallel_requests_each_get_their_own_answer(server: Server) -> None:
    texts = [f"answer {n} of many" for n in range(QUEUE + 1)]
    with ThreadPoolExecutor(len(texts)) as pool:
        answers = list(pool.map(server.chat, texts))
    assert [a.json()["choices"][0]["message"]["content"] for a in answers] == texts


def test_requests_are_served_in_order(server: Server, stream: EventStream) -> None:
    first = occupy(server)
    others = []
    for number in range(QUEUE):
        others.append(open_request(server, f"waiting{number}"))
        wait_until(lambda n=number: queue_of(server)["waiting"] == n + 1, what="the request to wait")  # type: ignore[misc]
    first.close()
    events = [event for _ in range(QUEUE + 1) for event in stream.until("generation_complete")]
    tokens = [e.data["token"] for e in events if e.name == "feature_activation" and e.data["token"]]
    assert tokens == [f"waiting{n}" for n in range(QUEUE)]
    for connection in others:
        connection.close()


def test_a_full_queue_refuses_at_once_and_recovers(server: Server) -> None:
    waiting = [occupy(server), *(open_request(server, "slow") for _ in range(QUEUE))]
    wait_until(lambda: queue_of(server)["waiting"] == QUEUE, what="a full queue")
    for stream in (False, True):
        refused = server.chat("too many", stream=stream)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) > 0
    for connection in waiting:
        connection.close()
    server.wait_idle()
    assert server.chat("there is room").status_code == 200


def test_a_refusal_reads_the_whole_request_first(server: Server) -> None:
    """Of a connection that is closed over unread bytes the kernel takes the answer back."""
    waiting = [occupy(server), *(open_request(server, "slow") for _ in range(QUEUE))]
    wait_until(lambda: queue_of(server)["waiting"] == QUEUE, what="a full queue")
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    for size, status in [(900_000, 429), (1_000_001, 413)]:
        body = b"{" + b" " * (size - 1)
        request = f"{head}Content-Length: {size}\r\n\r\n".encode() + (body if status == 429 else b"")
        assert status_of(raw_request(server.port, request)) == status
    for connection in waiting:
        connection.close()
    server.wait_idle()


def test_a_waiting_client_that_leaves_leaves_the_queue(server: Server) -> None:
    running = occupy(server)
    for stream in (False, True):
        waiting = open_request(server, "never asked", stream=stream)
        wait_until(lambda: queue_of(server)["waiting"] == 1, what="the request to wait")
        waiting.close()
        wait_until(lambda: queue_of(server)["waiting"] == 0, what="an empty queue")
        assert queue_of(server)["running"]
    running.close()
    server.wait_idle()


@pytest.mark.parametrize("stream_it", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"], ids=["chat", "text"])
def test_a_client_that_leaves_ends_its_generation_within_a_token(
    server: Server, stream: EventStream, path: str, stream_it: bool
) -> None:
    """Ten times at token 3 and ten times while the prompt is read; the next call finds everything as it was."""
    for round_ in range(20):
        at_token_3 = round_ % 2 == 0
        content = "[delay=0.02] " + "w " * 200 if at_token_3 else "[prefill=300] never"
        connection = open_request(server, content, stream=stream_it, path=path)
        if at_token_3:
            assert [event.data["token_index"] for event in stream.take(3)] == [0, 1, 2]
        else:
            wait_until(lambda: queue_of(server)["running"], what="the prefill")
        connection.close()
        complete = stream.until("generation_complete")[-1]
        assert complete.data["finish_reason"] == "cancelled"
        assert complete.data["total_tokens"] < 50 if at_token_3 else complete.data["total_tokens"] == 0
        assert server.chat("next").json()["choices"][0]["message"]["content"] == "next"
        stream.until("generation_complete")


@pytest.mark.parametrize("stream_it", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "more", [b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"], ids=["line", "next"]
)
def test_bytes_after_a_request_do_not_hide_that_its_client_leaves(
    server: Server, stream: EventStream, more: bytes, stream_it: bool
) -> None:
    connection = open_request(server, "[prefill=30] never", stream=stream_it)
    wait_until(lambda: queue_of(server)["running"], what="the prefill")
    connection.sendall(more)
    time.sleep(0.05)  # they come before the end, which would be seen at once without them
    connection.close()
    assert stream.until("generation_complete")[-1].data["finish_reason"] == "cancelled"
    server.wait_idle()


@pytest.mark.parametrize("stream_it", [False, True], ids=["whole", "stream"])
def test_a_request_sent_before_the_answer_to_the_last_is_answered_after_it(
    server: Server, stream_it: bool
) -> None:
    with open_request(server, "[delay=0.3] a b c", stream=stream_it) as connection:
        wait_until(lambda: queue_of(server)["running"], what="the first answer")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answers = connection.makefile("rb").read()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b'"finish_reason":"stop"') < answers.index(b'{"status":"ok"}')


def test_a_client_that_leaves_gives_up_the_reading_of_its_text(server: Server) -> None:
    for _ in range(20):
        connection = open_encode(server, "[prefill=300] never")
        wait_until(lambda: queue_of(server)["running"], what="the text to be read")
        connection.close()
        server.wait_idle()
        assert server.chat("next").status_code == 200


def test_who_waits_to_have_a_text_read_and_leaves_leaves_the_queue(server: Server) -> None:
    running = occupy(server)
    waiting = open_encode(server, "never read")
    wait_until(lambda: queue_of(server)["waiting"] == 1, what="the request to wait")
    waiting.close()
    wait_until(lambda: queue_of(server)["waiting"] == 0, what="an empty queue")
    assert queue_of(server)["running"]
    running.close()
    server.wait_idle()


def test_a_long_prompt_in_the_making_delays_no_refusal_and_no_look_at_a_feature(server: Server) -> None:
    waiting = [occupy(server), *(open_request(server, "[tokenize=4] long") for _ in range(QUEUE))]
    time.sleep(0.5)  # all have their place
    for refused in (
        server.chat("too many"),
        http.post(f"{server.features_url}/v1/features/encode", json={"text": "too many"}),
    ):
        assert refused.status_code == 429
    assert server.get("/v1/features/5").status_code == 200
    assert server.get("/v1/features/search?q=label").status_code == 200
    assert queue_of(server)["waiting"] == 0, "the first of the prompts is still being made"
    for connection in waiting:
        connection.close()
    server.wait_idle()
    wait_until(lambda: server.chat("there is room").status_code == 200, what="room")


def test_many_at_once_are_served_or_refused_and_none_hangs(server: Server) -> None:
    server.wait_idle()
    with ThreadPoolExecutor(30) as pool:
        statuses = list(pool.map(lambda _: server.chat("[delay=0.02] a b c").status_code, range(90)))
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= QUEUE + 1
    server.wait_idle()


def test_a_reader_that_never_reads_stops_nobody(server: Server) -> None:
    stuck = open_request(server, "[chars]" + "x" * 200, stream=True)
    silent = socket.create_connection(("127.0.0.1", server.features_port))
    silent.sendall(b"GET /v1/features/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(20):
        assert server.chat("w " * 50).status_code == 200
    stuck.close()
    silent.close()


def test_a_slow_body_does_not_hold_others_up(server: Server) -> None:
    slow = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert server.chat("hello").status_code == 200
    slow.close()


def test_other_routes_answer_while_the_model_is_busy(server: Server) -> None:
    busy = occupy(server)
    for url in (f"{server.chat_url}/healthz", f"{server.features_url}/v1/features/labels"):
        assert http.get(url).status_code == 200
    assert queue_of(server)["running"]
    busy.close()
    server.wait_idle()
