"""The features stream over a WebSocket: the same events, each client's own settings, and no frame that breaks it."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from raw_websocket import BINARY, CLOSE, PATH, PING, PONG, TEXT, RawWebSocket, frame, handshake
from serving import EventStream, Server, raw_request, serving, status_of, wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from neuroscope.server import wire


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a ring that holds everything said here. The shared one's is small and its pings are quick."""
    with serving(tmp_path_factory.mktemp("sockets"), serve={"heartbeat_s": 5, "max_streams": 6}) as running:
        yield running
    assert "Traceback" not in running.output, running.output
    assert "Invalid request" not in running.output, "nothing that follows a handshake is read as a request"


def ws(server: Server, query: str = "", **options: Any) -> ClientConnection:
    url = f"ws://127.0.0.1:{server.features_port}{PATH}{query}"
    return connect(url, max_queue=None, **options)  # unread messages must not keep it from closing


def take(client: ClientConnection, name: str) -> list[dict[str, Any]]:
    """The messages up to and with the first one of that name."""
    taken = []
    while not taken or taken[-1]["event"] != name:
        taken.append(json.loads(client.recv(timeout=60)))
    return taken


def subscribers(server: Server) -> int:
    return int(server.get("/readyz").json()["subscribers"])


def empty(server: Server) -> None:
    wait_until(lambda: subscribers(server) == 0, what="every place to be given back")


def test_the_events_are_those_of_the_other_stream(sockets: Server) -> None:
    for query in ("", "?filter=none&top_k=2", "?features=20,21&align=producer"):
        with (
            ws(sockets, query) as client,
            EventStream(sockets.features_port, f"/v1/features/stream{query}") as sse,
        ):
            next(sse.blocks())
            take(client, "settings")
            sockets.chat("[chars]né 👩‍👩‍👧 漢字")
            expected = [
                {"event": e.name, "id": e.id, "data": e.data} for e in sse.until("generation_complete")
            ]
            assert take(client, "generation_complete") == expected


def test_a_server_sent_event_and_a_message_say_the_same() -> None:
    data = {"text": 'a "quoted"\n\nline\u2028 é: b', "n": None}
    blocks = wire.HEARTBEAT + wire.event("one", data, "ab-1") + b": note\nretry: 5\nid: ab-1\n\n"
    blocks += wire.event("two", [], "ab-2")
    assert [json.loads(message) for message in wire.messages(blocks)] == [
        {"event": "one", "id": "ab-1", "data": data},
        {"event": "two", "id": "ab-2", "data": []},
    ]


def test_the_first_message_says_where_the_stream_is_and_how_it_is_seen(sockets: Server) -> None:
    with ws(sockets, "?top_k=3&features=5,4&completion_id=c") as client:
        (opening,) = take(client, "settings")
    assert opening["data"] == {
        "filter": "frequency",
        "threshold": 0.5,
        "top_k": 3,
        "min_activation": 0.0,
        "features": [4, 5],
        "align": "own",
        "completion_id": "c",
    }
    sockets.chat("a")
    with ws(sockets, "") as client:
        (now,) = take(client, "settings")
    with ws(sockets, f"?since={now['id'].rpartition('-')[0]}-0") as client:
        assert take(client, "generation_complete")[0]["event"] == "settings"
    assert client.response is not None
    assert client.response.headers["x-request-id"].startswith("req_")


def test_a_returning_client_gets_every_event_exactly_once(sockets: Server) -> None:
    with ws(sockets) as client:
        take(client, "settings")
        sockets.chat("a b c d")
        events = take(client, "generation_complete")
    with ws(sockets, f"?since={events[1]['id']}") as again:
        opening, *rest = take(again, "generation_complete")
    assert opening["id"] == events[1]["id"]
    assert rest == events[2:]


def test_what_is_lost_is_announced_as_on_the_other_stream(server: Server) -> None:
    with ws(server) as client:
        (opening,) = take(client, "settings")
    server.chat("w " * 100)  # 102 events, and this ring holds 64
    with ws(server, f"?since={opening['id']}") as client:
        _, gap, *events = take(client, "generation_complete")
    assert (gap["event"], gap["data"]["missed"]) == ("gap", 102 - 64)
    assert len(events) == 64
    with ws(server, "?since=deadbeef-7") as client:
        gap = take(client, "gap")[-1]
    assert gap["data"]["missed"] is None


def test_one_completion_can_be_followed_alone(sockets: Server) -> None:
    answers = [sockets.chat(text).json()["id"] for text in ("a b", "c d e", "f")]
    with ws(sockets, f"?completion_id={answers[1]}") as client:
        _, *events = take(client, "generation_complete")
    assert {e["data"]["completion_id"] for e in events} == {answers[1]}
    assert "".join(e["data"].get("token", "") for e in events) == "c d e"


def test_what_others_were_sent_is_no_loss_to_who_follows_one_answer(server: Server) -> None:
    server.chat("w " * 100)  # more than this ring holds
    answer = server.chat("a b").json()["id"]
    with ws(server, f"?completion_id={answer}") as client:
        names = [event["event"] for event in take(client, "generation_complete")]
    assert names == ["settings", *["feature_activation"] * 3, "generation_complete"]


def test_a_client_changes_its_own_settings_as_it_listens(sockets: Server) -> None:
    with ws(sockets, "?top_k=1") as client, ws(sockets) as other:
        take(client, "settings")

        def seen(**changes: Any) -> list[int]:
            client.send(json.dumps({"type": "configure", **changes}))
            settings = take(client, "settings")[-1]["data"]
            assert all(settings[name] == value for name, value in changes.items() if value is not None)
            sockets.chat("one")
            first, *_ = take(client, "generation_complete")
            return [feature["index"] for feature in first["data"]["top_features"]]

        assert seen(filter="none") == [3]
        assert seen(top_k=2.0, min_activation=0.5) == [3, 4], "the filter stays as it was"
        assert seen(features=[20]) == [20]
        assert seen(features=None, top_k=None, filter=None, threshold=1) == [3, 4, 20], "null is the default"
        assert seen(completion_id=None, align="producer", threshold=0.5) == [0]
        assert [e["data"]["top_features"][0]["index"] for e in take(other, "generation_complete")[1:-1]] == [
            4,
            5,
        ]


def test_a_completion_can_be_chosen_and_left_again(sockets: Server) -> None:
    with ws(sockets) as client:
        client.send('{"type": "configure", "completion_id": "nobody"}')
        take(client, "settings")
        assert take(client, "settings")[-1]["data"]["completion_id"] == "nobody"
        sockets.chat("unseen")
        client.send('{"type": "configure", "completion_id": null}')
        assert [m["event"] for m in take(client, "settings")] == ["settings"]
        sockets.chat("seen")
        assert take(client, "generation_complete")[0]["data"]["token"] == "seen"


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ("", None, "invalid_json"),
        ("{", None, "invalid_json"),
        ("[" * 5000, None, "invalid_json"),
        ('{"type": NaN}', None, "invalid_json"),
        ("5", "type", "invalid_value"),
        ("[]", "type", "invalid_value"),
        ("{}", "type", "invalid_value"),
        ('{"type": "Configure"}', "type", "invalid_value"),
        ('{"type": ["configure"]}', "type", "invalid_value"),
        ('{"type": "configure", "top-k": 5}', None, "invalid_value"),
        ('{"type": "configure", "since": "0"}', None, "invalid_value"),
        ('{"type": "configure", "top_k": 0}', "top_k", "invalid_value"),
        ('{"type": "configure", "top_k": true}', "top_k", "invalid_value"),
        ('{"type": "configure", "top_k": 1.5}', "top_k", "invalid_value"),
        ('{"type": "configure", "threshold": 1e999}', "threshold", "invalid_value"),
        ('{"type": "configure", "filter": {}}', "filter", "invalid_value"),
        ('{"type": "configure", "features": [1, true]}', "features", "invalid_value"),
        ('{"type": "configure", "features": [-1]}', "features", "invalid_value"),
        ('{"type": "configure", "align": "left"}', "align", "invalid_value"),
    ],
)
def test_a_wrong_message_is_answered_and_changes_nothing(
    sockets: Server, message: str, param: str | None, code: str
) -> None:
    with ws(sockets, "?top_k=1") as client:
        take(client, "settings")
        client.send(message)
        error = take(client, "error")[-1]["data"]["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["param"], error["code"]) == (param, code)
        assert len(error["message"]) < 400
        client.send('{"type": "configure"}')
        assert take(client, "settings")[-1]["data"]["top_k"] == 1


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("?top_k=0", 400, "top_k"),
        ("?filter=best", 400, "filter"),
        ("?since=yesterday", 400, "since"),
        ("?features=", 400, "features"),
        ("?features=32", 400, "features"),
    ],
)
def test_wrong_parameters_are_refused_before_the_handshake(
    sockets: Server, query: str, status: int, param: str
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        ws(sockets, query)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["error"]["param"] == param
    empty(sockets)


def test_too_many_are_told_to_come_back_before_the_handshake(sockets: Server) -> None:
    empty(sockets)
    with ExitStack() as stack, EventStream(sockets.features_port):
        clients = [stack.enter_context(ws(sockets)) for _ in range(5)]
        with pytest.raises(InvalidStatus) as refused:
            ws(sockets)
        response = refused.value.response
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0
        assert json.loads(response.body or b"")["error"]["code"] == "too_many_subscribers"
        clients[0].send('{"type": "configure", "top_k": 3}')
        take(clients[0], "settings")
        assert take(clients[0], "settings")[-1]["data"]["top_k"] == 3, "a change needs no second place"
        assert subscribers(sockets) == 6
    empty(sockets)


HANDSHAKES: list[tuple[dict[str, str], int, str]] = [
    ({"Upgrade": "", "Connection": ""}, 426, "upgrade_required"),
    ({"Upgrade": "h2c"}, 426, "upgrade_required"),
    ({"Connection": "close"}, 426, "upgrade_required"),
    ({"Sec_WebSocket_Version": "8"}, 426, "upgrade_required"),
    ({"Sec_WebSocket_Version": ""}, 426, "upgrade_required"),
    ({"Sec_WebSocket_Key": ""}, 400, "invalid_handshake"),
    ({"Sec_WebSocket_Key": "c2hvcnQ="}, 400, "invalid_handshake"),
    ({"Sec_WebSocket_Key": "\xe9" * 24}, 400, "invalid_handshake"),
    ({"Content_Length": "5"}, 400, "invalid_handshake"),
    ({"version": "1.0"}, 400, "invalid_handshake"),
    ({"method": "POST"}, 405, "method_not_allowed"),
    ({"path": "/v1/features/labels"}, 404, "not_found"),
    ({"path": "/nowhere"}, 404, "not_found"),
]


@pytest.mark.parametrize(("changes", "status", "code"), HANDSHAKES, ids=str)
def test_what_is_no_handshake_is_refused_in_the_same_shape(
    sockets: Server, changes: dict[str, str], status: int, code: str
) -> None:
    body = b"GET /" if "Content_Length" in changes else b""
    request = handshake(sockets.features_port, **{"path": PATH, **changes}) + body  # type: ignore[arg-type]
    answer = raw_request(sockets.features_port, request)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == status
    assert (b"\r\nUpgrade: websocket" in head) == (status == 426)
    assert b"\r\nContent-Type: application/json" in head
    assert json.loads(content)["error"]["code"] == code
    assert subscribers(sockets) == 0


def test_the_chat_port_has_no_web_socket(sockets: Server) -> None:
    for path, message in (
        (PATH, b"There is no '/v1/features/ws' on this port."),
        ("/v1/models", b"no WebSocket at"),
    ):
        answer = raw_request(sockets.port, handshake(sockets.port, path))
        assert status_of(answer) == 404
        assert message in answer


def test_no_compression_is_agreed_to(sockets: Server) -> None:
    with RawWebSocket(sockets.features_port, Sec_WebSocket_Extensions="permessage-deflate") as raw:
        assert "sec-websocket-extensions" not in raw.headers
        raw.send(frame(TEXT, b"{}", rsv=4))
        assert raw.close_code() == 1002


def test_a_header_that_is_none_of_a_web_socket_s_is_let_pass(sockets: Server) -> None:
    with RawWebSocket(sockets.features_port, X_Odd="\xe9", Sec_WebSocket_Protocol="chat") as raw:
        assert "sec-websocket-protocol" not in raw.headers
        raw.until("settings")


BAD_FRAMES: list[tuple[str, bytes, int]] = [
    ("unmasked", frame(TEXT, b"{}", masked=False), 1002),
    ("reserved bit", frame(TEXT, b"{}", rsv=1), 1002),
    ("reserved opcode", frame(3, b"{}"), 1002),
    ("reserved control opcode", frame(11), 1002),
    ("long ping", frame(PING, b"x" * 126), 1002),
    ("fragmented ping", frame(PING, b"x", fin=False), 1002),
    ("continuation of nothing", frame(0, b"x"), 1002),
    ("message within a message", frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    ("not UTF-8", frame(TEXT, b"\xff\xfe"), 1007),
    ("half a character", frame(TEXT, b"\xc3"), 1007),
    ("surrogate", frame(TEXT, b"\xed\xa0\x80"), 1007),
    ("binary", frame(BINARY, b"{}"), 1003),
    ("too long", frame(TEXT, b"x" * 16_385), 1009),
    ("too long in pieces", frame(TEXT, b"x" * 9000, fin=False) + frame(0, b"x" * 9000), 1009),
    ("endless", b"\x81\xff" + struct.pack("!Q", 2**62) + b"\0\0\0\0" + b"x" * 20_000, 1009),
    ("length with a sign", b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0", 1002),
    ("close of one byte", frame(CLOSE, b"x"), 1002),
    ("close with a code for nobody", frame(CLOSE, struct.pack("!H", 1005)), 1002),
    ("close not in UTF-8", frame(CLOSE, struct.pack("!H", 1000) + b"\xff"), 1007),
    ("another request", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 1002),
]


@pytest.mark.parametrize(("data", "code"), [b[1:] for b in BAD_FRAMES], ids=[b[0] for b in BAD_FRAMES])
def test_a_wrong_frame_ends_the_connection_with_its_code(sockets: Server, data: bytes, code: int) -> None:
    with RawWebSocket(sockets.features_port) as raw:
        raw.send(data)
        assert raw.close_code() == code
    empty(sockets)


def test_frames_in_pieces_and_pings_between_them_are_read(sockets: Server) -> None:
    with RawWebSocket(sockets.features_port) as raw:
        raw.until("settings")
        text = '{"type": "configure", "filter": "né"}'.encode()
        middle = text.index("é".encode()) + 1  # of a character
        raw.send(
            frame(TEXT, text[:middle], fin=False) + frame(PING, b"are you there") + frame(0, b"", fin=False)
        )
        for byte in frame(0, text[middle:]):
            raw.send(bytes([byte]))
        answers = raw.frames()
        assert next(answers) == (PONG, b"are you there")
        assert "'filter' is 'né'" in json.loads(next(answers)[1])["data"]["error"]["message"]
        raw.send(frame(PONG, b"unasked"))
        raw.send(frame(CLOSE, struct.pack("!H", 3500) + b"bye"))
        assert next(answers) == (CLOSE, struct.pack("!H", 3500) + b"bye")
        assert next(answers, None) is None


def test_what_follows_the_end_is_no_request(sockets: Server) -> None:
    """More than is read at once, so that it still lies in the socket when gunicorn has the connection again."""
    with RawWebSocket(sockets.features_port) as raw:
        raw.until("settings")
        raw.send(frame(CLOSE) + b"GARBAGE\r\n\r\n" * 2000)
        assert next(raw.frames())[0] == CLOSE
    empty(sockets)


def test_random_bytes_end_one_connection_and_nothing_else(sockets: Server) -> None:
    rng = random.Random(0)
    with ws(sockets) as bystander:
        take(bystander, "settings")
        for _ in range(20):
            with RawWebSocket(sockets.features_port) as raw:
                raw.send(rng.randbytes(rng.randint(1, 300)))
                raw.socket.shutdown(socket.SHUT_WR)
                for opcode, _ in raw.frames():
                    assert opcode in (TEXT, CLOSE, PONG)
        sockets.chat("still here")
        assert take(bystander, "generation_complete")
    empty(sockets)


def test_a_flood_harms_the_flooder_only(sockets: Server) -> None:
    """Ten thousand pings that nobody waits for: they are answered at a walk, and the others hear everything."""
    with RawWebSocket(sockets.features_port) as flooder, ws(sockets) as bystander:
        take(bystander, "settings")
        flooder.send(frame(PING, b"!") * 10_000)
        sockets.chat("one two")
        assert len(take(bystander, "generation_complete")) == 4
    empty(sockets)


@pytest.mark.parametrize("way", ["close", "cut", "reset"])
def test_a_client_that_leaves_gives_its_place_back_at_once(sockets: Server, way: str) -> None:
    raw = RawWebSocket(sockets.features_port)
    raw.until("settings")
    assert subscribers(sockets) == 1
    if way == "close":
        raw.send(frame(CLOSE))
        assert raw.close_code() == 1005
    elif way == "reset":
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.cut()
    wait_until(
        lambda: subscribers(sockets) == 0, what="the place to be free", seconds=4
    )  # before a heartbeat


def test_a_dead_client_is_noticed_by_its_silence(server: Server) -> None:
    with RawWebSocket(server.features_port) as dead:
        opcodes = [opcode for opcode, _ in dead.frames()]
    assert opcodes[0] == TEXT
    assert opcodes.count(PING) >= 2
    empty(server)


def test_a_living_client_is_kept_by_its_pongs(server: Server) -> None:
    with ws(server, ping_interval=None) as client:
        take(client, "settings")
        time.sleep(2)  # six heartbeats, and four unanswered ones are the end
        server.chat("a")
        assert take(client, "generation_complete")


def test_a_slow_reader_gets_every_byte_right(sockets: Server) -> None:
    """Far more than the buffers between hold, so that the kernel takes frames in parts."""
    expected: list[dict[str, Any]] = []

    def watch() -> None:
        answers = 0
        for event in sse.events():
            expected.append({"event": event.name, "id": event.id, "data": event.data})
            answers += event.name == "generation_complete"
            if answers == ANSWERS:
                return

    with (
        EventStream(sockets.features_port, "/v1/features/stream?filter=none") as sse,
        RawWebSocket(sockets.features_port, f"{PATH}?filter=none", receive_buffer=2048) as slow,
    ):
        next(sse.blocks())
        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(ANSWERS):
            sockets.chat("w " * 120 + "é " * 5)
        watcher.join(60)
        assert sum(len(json.dumps(event)) for event in expected) > 600_000
        read = []
        for message in slow.messages():
            if message["event"] != "settings":
                read.append(message)
            if len(read) == len(expected):
                break
            if len(read) < 50:
                time.sleep(0.002)
    assert read == expected


ANSWERS = 14


def test_everyone_hears_of_the_end_and_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, serve={"max_streams": 60}) as server, ExitStack() as stack:
        clients = [stack.enter_context(ws(server)) for _ in range(40)]
        silent = [stack.enter_context(RawWebSocket(server.features_port)) for _ in range(5)]
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 30
        for client in clients:
            messages = [json.loads(message) for message in client]
            assert messages[-1]["event"] == "shutdown"
            assert client.close_code == 1001
        for raw in silent:
            assert [m["event"] for m in raw.messages()] == ["settings", "shutdown"]
            assert raw.closed == 1001
        assert "Traceback" not in server.output
