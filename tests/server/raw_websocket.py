"""A WebSocket client of bytes: it sends what no decent client would, and checks every byte that comes back."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
PATH = "/v1/features/ws"


def handshake(
    port: int, path: str = PATH, *, method: str = "GET", version: str = "1.1", **changes: str
) -> bytes:
    """The bytes of a handshake; `changes` replace headers (`_` for `-`), the empty string leaves one out."""
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{method} {path} HTTP/{version}", *(f"{k}: {v}" for k, v in headers.items() if v), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    head = bytes([fin << 7 | rsv << 4 | opcode])
    mask_bit = masked << 7
    if len(payload) < 126:
        head += bytes([mask_bit | len(payload)])
    elif len(payload) < 65536:
        head += bytes([mask_bit | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([mask_bit | 127]) + struct.pack("!Q", len(payload))
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


class RawWebSocket:
    """Connected, with the handshake checked. Answers pings unless it is told not to."""

    def __init__(
        self, port: int, path: str = PATH, *, receive_buffer: int | None = None, **changes: str
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(handshake(port, path, **{"Sec_WebSocket_Key": key, **changes}))
        self._file = self.socket.makefile("rb", buffering=512)
        head = []
        while (line := self._file.readline().strip().decode("latin-1")) != "":
            head.append(line)
        assert head[0].startswith("HTTP/1.1 101 "), head
        self.headers = {
            name.lower(): value.strip() for name, _, value in (h.partition(":") for h in head[1:])
        }
        expected = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        assert self.headers["sec-websocket-accept"] == base64.b64encode(expected).decode()

    def __enter__(self) -> RawWebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, **message: Any) -> None:
        self.send(frame(TEXT, json.dumps(message).encode()))

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Every frame until the connection ends. What is no whole, unmasked, plain frame fails."""
        while first := self._file.read(1):
            assert first[0] & 0x70 == 0, "no extension is in use"
            assert first[0] & 0x80, "messages come in one frame"
            (second,) = self._file.read(1)
            assert second < 128, "a server masks nothing"
            length = second
            if second == 126:
                (length,) = struct.unpack("!H", self._file.read(2))
            elif second == 127:
                (length,) = struct.unpack("!Q", self._file.read(8))
            payload = self._file.read(length)
            assert len(payload) == length
            yield first[0] & 0x0F, payload

    def messages(self) -> Iterator[dict[str, Any]]:
        """Every message until the end; the code of the close is in `closed`."""
        self.closed: int | None = None
        for opcode, payload in self.frames():
            if opcode == TEXT:
                yield json.loads(payload)
            elif opcode == PING:
                self.send(frame(PONG, payload))
            elif opcode == CLOSE:
                (self.closed,) = struct.unpack("!H", payload[:2]) if payload else (1005,)
                return

    def until(self, name: str) -> list[dict[str, Any]]:
        taken = []
        for message in self.messages():
            taken.append(message)
            if message["event"] == name:
                return taken
        raise AssertionError(f"closed with {self.closed} before {name}: {taken}")

    def close_code(self) -> int:
        """The code the server closes with; the connection must end after it."""
        for _ in self.messages():
            pass
        assert self.closed is not None, "the connection ended without a close"
        self.send(frame(CLOSE, struct.pack("!H", 1000)))
        assert self._file.read() == b""
        return self.closed
