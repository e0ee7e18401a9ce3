"""One connection without a server: whole frames under several senders, and the ends of those who do not read."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket
from raw_websocket import CLOSE, PING, TEXT, frame
from simple_websocket import ConnectionClosed, Server
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import TextMessage

from neuroscope.server import websocket
from neuroscope.server.websocket import Line, framed, handed_over, server_options

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's end, and a client's that holds little."""
    one, other = socket.socketpair()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with one, other:
        yield one, other


def connect(ends: tuple[socket.socket, socket.socket], heartbeat_s: float) -> tuple[Server, Line, list[bool]]:
    """simple_websocket as flask-sock makes it, its line, and a list that has an element once the line has ended."""
    ended: list[bool] = []
    server, client = ends
    line = Line(server, [("x-request-id", "req_1")], lambda: ended.append(True))
    ws = Server(
        handed_over({"HTTP_SEC_WEBSOCKET_EXTENSIONS": "what"}, KEY, line), **server_options(heartbeat_s)
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    assert b"\r\nx-request-id: req_1\r\n" in head
    return ws, line, ended


def speak(ws: Server, text: str) -> None:
    while True:
        ws.send(text)


def frames(received: bytes) -> list[tuple[int, bytes]]:
    """What a client reads in `received`; a frame cut short or mixed with another fails."""
    found = []
    while received:
        opcode, length, start = received[0], received[1], 2
        if length == 126:
            (length,), start = struct.unpack("!H", received[2:4]), 4
        assert opcode & 0xF0 == 0x80
        assert len(received) >= start + length
        found.append((opcode & 0x0F, received[start : start + length]))
        received = received[start + length :]
    return found


def test_frames_stay_whole_when_several_speak_and_the_reader_is_slow(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "SEND_BUFFER", 4096)
    monkeypatch.setattr(websocket, "PAUSE_SECONDS", 0)
    ws, line, _ = connect(ends, 0.01)
    client = ends[1]
    heard: list[str] = []

    def listen() -> None:
        try:
            while True:
                heard.append(ws.receive())
        except ConnectionClosed:
            return

    def say(letter: str) -> None:
        for _ in range(60):
            ws.send(letter * 9000)

    def ask() -> None:
        for _ in range(50):
            client.sendall(frame(PING, b"?") + frame(TEXT, b"hello"))
            gevent.sleep(0.001)

    listening = gevent.spawn(listen)
    speakers = [gevent.spawn(say, letter) for letter in "ab"]
    asking = gevent.spawn(ask)
    received = b""
    while not (asking.dead and len(heard) == 50 and all(speaker.dead for speaker in speakers)):
        received += client.recv(3000)
        gevent.sleep(0)
    gevent.spawn(ws.close, 1000, "")
    while piece := client.recv(65536):
        received += piece
        if received.endswith(b"\x88\x02\x03\xe8"):
            client.sendall(frame(CLOSE, b"\x03\xe8"))
    line.finish()
    listening.join()
    read = frames(received)
    texts = [payload for opcode, payload in read if opcode == TEXT]
    assert sorted(texts) == [b"a" * 9000] * 60 + [b"b" * 9000] * 60
    assert sum(opcode == PING for opcode, _ in read) > 0
    assert read[-1] == (CLOSE, b"\x03\xe8")
    assert heard == ["hello"] * 50


def test_who_does_not_read_is_cut_after_the_stall_time(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "STALL_SECONDS", 0.2)
    ws, line, ended = connect(ends, 1000)
    with gevent.Timeout(30):
        with pytest.raises(ConnectionClosed):
            speak(ws, "x" * 60_000)
        line.send(b"of no effect")
        line.finish()
    assert ended == [True], "it is told once"


def test_a_slow_reader_is_not_taken_for_dead(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers no ping for twenty heartbeats, since it has not come to one yet; but it reads."""
    monkeypatch.setattr(websocket, "SEND_BUFFER", 4096)
    monkeypatch.setattr(websocket, "_WAITED_SECONDS", 0.001)
    ws, line, ended = connect(ends, 0.05)
    client = ends[1]

    def until_closed() -> None:
        with pytest.raises(ConnectionClosed):
            speak(ws, "x" * 50_000)

    speaking = gevent.spawn(until_closed)
    for _ in range(100):
        gevent.sleep(0.01)
        client.recv(20_000)
    assert not ended
    client.close()
    speaking.join(20)
    assert speaking.successful()
    line.finish()
    assert ended


@pytest.mark.parametrize("is_under_way", [True, False])
def test_a_message_that_had_to_wait_is_as_good_as_a_pong(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, is_under_way: bool
) -> None:
    """The other end has read some of it. While it is under way no ping is sent, which would stand behind it."""
    monkeypatch.setattr(websocket, "SEND_BUFFER", 4096)
    ws, line, _ = connect(ends, 1000)
    for _ in range(websocket.PONG_HEARTBEATS):
        assert ws.pong_received, "or the next ping would be the end"
        line.send(b"\x89\x00")
    assert not ws.pong_received
    sending = gevent.spawn(ws.send, "x" * 50_000)
    gevent.sleep(0.1)
    if is_under_way:
        line.send(b"\x89\x00")
        assert ws.pong_received
    received = b""
    while len(received) < 50_004 + 2 * websocket.PONG_HEARTBEATS:
        received += ends[1].recv(20_000)
    sending.join()
    assert ws.pong_received
    assert [opcode for opcode, _ in frames(received)].count(PING) == websocket.PONG_HEARTBEATS
    line.finish()


def test_who_does_not_read_the_answers_is_not_asked_for_more(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "PAUSE_SECONDS", 0.001)
    ws, line, _ = connect(ends, 1000)
    flooding = gevent.spawn(ends[1].sendall, frame(TEXT, b"?") * 50_000)
    gevent.sleep(0.5)
    assert 0 < len(ws.input_buffer) < 100
    assert not flooding.dead
    flooding.kill()
    line.finish()


@pytest.mark.parametrize("reads", [True, False])
def test_what_lies_unread_before_a_reset_keeps_no_place(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """Ten thousand pings are read in minutes here; the first that cannot be answered is the end, as `finish` is."""
    monkeypatch.setattr(websocket, "PAUSE_SECONDS", 0.5)
    _, line, ended = connect(ends, 1000)
    ends[1].sendall(frame(PING, b"!") * 10_000)
    with gevent.Timeout(30):
        if reads:
            ends[1].close()
            while not ended:
                gevent.sleep(0.01)
        line.finish()
    assert ended == [True]


def test_a_ping_that_is_due_while_the_end_is_awaited_does_no_harm(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """simple_websocket then closes a second time, which is an error, and would be a traceback in the log."""
    ws, line, ended = connect(ends, 0.05)
    while ws.pong_received:
        gevent.sleep(0.005)
    ws.close(1001)
    line.finish()
    assert ws.thread.successful()
    assert ended == [True]
    assert frames(ends[1].recv(1000))[-1] == (CLOSE, b"\x03\xe9")


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536, 100_000])
def test_a_frame_made_for_all_is_the_one_made_for_each(length: int) -> None:
    text = "x" * length
    assert framed(text.encode()) == Connection(ConnectionType.SERVER).send(TextMessage(data=text))


def test_nobody_speaks_into_a_message_that_was_taken_in_part(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "SEND_BUFFER", 4096)
    ws, line, _ = connect(ends, 1000)
    message = framed(b"a" * 60_000)
    sent = line.offer(message)
    assert 0 < sent < len(message)
    with pytest.raises(BlockingIOError):
        line.offer(message)
    speaking = gevent.spawn(ws.send, "b" * 10)
    finishing = gevent.spawn(line.finish_offer, memoryview(message)[sent:])
    received = b""
    while len(received) < len(message) + 12:
        received += ends[1].recv(20_000)
    gevent.joinall([speaking, finishing])
    assert frames(received) == [(TEXT, b"a" * 60_000), (TEXT, b"b" * 10)]
    assert line.offer(framed(b"c")) == 3
    line.finish()
    with pytest.raises(BlockingIOError):
        line.offer(framed(b"d"))
