"""A listener on loopback that says given bytes to whoever asks, cut into given pieces: servers that are not ours."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Self

Step = bytes | float | threading.Event

OPENING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def answer(body: bytes, kind: str = "application/json", status: str = "200 OK", *more: str) -> bytes:
    """One whole HTTP answer."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, *more, "", ""]).encode() + body


class RawServer:
    """Each connection in turn gets one of `scripts`, the last one again and again, and is then closed.

    A number in a script is a pause in seconds, an event is waited for. What was asked is kept in `requests`.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.requests: list[bytes] = []
        self.asked = threading.Event()
        """Set by the first request."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        count = 0
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(count, len(self._scripts) - 1)]
            count += 1
            threading.Thread(target=self._say, args=(connection, script), daemon=True).start()

    def _say(self, connection: socket.socket, script: Sequence[Step]) -> None:
        with connection:
            self.requests.append(connection.recv(1_000_000))
            self.asked.set()
            for step in script:
                try:
                    if isinstance(step, bytes):
                        connection.sendall(step)
                    elif isinstance(step, threading.Event):
                        step.wait(60)
                    else:
                        time.sleep(step)
                except OSError:
                    return
