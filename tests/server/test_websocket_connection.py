"""One connection without a server: whole frames under several senders, and the ends of those who do not read."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket
from raw_websocket import CLOSE, PING, TEXT, frame

from neuroscope.server import websocket
from neuroscope.server.websocket import WebSocket, text_frame


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's end, and a client's that holds little."""
    one, other = socket.socketpair()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with one, other:
        yield one, other


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
    monkeypatch.setattr(websocket, "FRAME_SECONDS", 0)
    server, client = ends
    heard: list[str] = []
    connection = WebSocket(server, 0.01, heard.append, lambda: None)

    def speak(letter: bytes) -> None:
        for _ in range(60):
            connection.send(text_frame(letter * 9000))

    def ask() -> None:
        for _ in range(50):
            client.sendall(frame(PING, b"?") + frame(TEXT, b"hello"))
            gevent.sleep(0.001)

    speakers = [gevent.spawn(speak, letter) for letter in (b"a", b"b")]
    asking = gevent.spawn(ask)
    received = b""
    while True:
        received += client.recv(3000)
        gevent.sleep(0)
        if asking.dead and all(speaker.dead for speaker in speakers):
            break
    gevent.spawn(connection.close, 1000, "")
    while piece := client.recv(65536):
        received += piece
        if received.endswith(b"\x88\x02\x03\xe8"):
            client.sendall(frame(CLOSE, b"\x03\xe8"))
    connection.finish()
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
    server, _client = ends
    ended: list[bool] = []
    connection = WebSocket(server, 1000, print, lambda: ended.append(True))
    with gevent.Timeout(30):
        while not connection.ended:
            connection.send(text_frame(b"x" * 60_000))
        connection.send(text_frame(b"of no effect"))
        connection.close(1001, "of no effect")
        connection.finish()
    assert ended == [True], "it is told once"


def test_a_slow_reader_is_not_taken_for_dead(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers no ping for twenty heartbeats, since it has not come to one yet; but it reads."""
    monkeypatch.setattr(websocket, "SEND_BUFFER", 4096)
    monkeypatch.setattr(websocket, "_WAITED_SECONDS", 0.001)
    server, client = ends
    connection = WebSocket(server, 0.05, print, lambda: None)

    def speak() -> None:
        while not connection.ended:
            connection.send(text_frame(b"x" * 50_000))

    speaking = gevent.spawn(speak)
    for _ in range(100):
        gevent.sleep(0.01)
        client.recv(20_000)
    assert not connection.ended
    client.close()
    speaking.join(20)
    assert connection.ended
    connection.finish()
