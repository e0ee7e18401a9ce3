"""The server process of a run, its crowd of subscribers, and plain HTTP to it over raw sockets."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from serving import ROOT, Server, serving

STREAM = "/v1/features/stream"
CHAT = "/v1/chat/completions"
REAL_PAIRING = "smollm2-135m"
PATIENCE_S = 60.0
"""How long anything may take that is not measured: past it the run fails instead of hanging."""


@contextmanager
def soaked(*, real: bool = False, **serve: Any) -> Iterator[Server]:
    """The product's server process around the engine of `wsgi.py`, stopped at the end."""
    pairing = yaml.safe_load((ROOT / f"config/pairings/{REAL_PAIRING}.yaml").read_text()) if real else None
    env = {"SOAK_REAL_MODEL": "1", "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"} if real else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), app="bench.soak.wsgi", env=env, pairing=pairing, serve=serve) as server,
    ):
        try:
            yield server
        except Exception:
            print(f"--- the server's log ---\n{server.output[-4000:]}", file=sys.stderr, flush=True)
            raise


def census(server: Server) -> dict[str, int]:
    """What the server process holds; see `wsgi.py`."""
    return dict(server.get("/soak/census").json())


class Crowd:
    """The process of `readers.py`, and the sentences it says."""

    def __init__(
        self,
        server: Server,
        readers: int = 0,
        *,
        stuck: int = 0,
        slow: int = 0,
        answers: int | None = None,
        seconds: float = PATIENCE_S,
        queries: tuple[str, ...] = ("",),
    ) -> None:
        asked = {
            "port": server.features_port,
            "paths": [STREAM + query for query in queries],
            "readers": readers,
            "stuck": stuck,
            "slow": slow,
            "answers": answers,
            "seconds": seconds,
            "patience_s": PATIENCE_S,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.soak.readers", json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            self.connected_s: float = self._said()["connected_s"]
        except BaseException:
            self.leave()
            raise

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def result(self) -> dict[str, Any]:
        """What they have seen, once they are done or their time is up."""
        return self._said()

    def dismiss(self) -> dict[str, Any]:
        """What they have seen up to now."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._said()

    def leave(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"The process of the subscribers ended with status {self.process.wait()}.")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise SystemExit(f"The subscribers say: {said['error']}.")
        return said


@dataclass(frozen=True)
class Answer:
    """A whole HTTP response; `status` 0 stands for none."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent_at: float
    seconds: float
    """From the request's sending to the last byte."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request_bytes(method: str, path: str, body: Any = None, *, keep: bool = False) -> bytes:
    """An HTTP request; `body` is bytes, or a value to be sent as JSON."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + payload


def question(content: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **more}


def all_at_once(port: int, requests: list[bytes], seconds: float = PATIENCE_S) -> list[Answer | None]:
    """Connect for each request, then send all, and note when each one's answer is there. None: it never was.

    Connections are kept open, as the clients of this API do.
    """
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in requests]
    number = {connection.fileno(): n for n, connection in enumerate(connections)}
    poll = select.epoll()
    for connection in connections:
        poll.register(connection.fileno(), select.EPOLLIN)
    sent, raw = [], [b""] * len(requests)
    answers: list[Answer | None] = [None] * len(requests)
    for connection, request in zip(connections, requests, strict=True):
        sent.append(time.monotonic())
        connection.sendall(request)
    deadline = time.monotonic() + seconds
    while number and time.monotonic() < deadline:
        for fd, _ in poll.poll(0.5):
            n = number[fd]
            piece = connections[n].recv(65536)
            raw[n] += piece
            if not piece or is_whole(raw[n]):
                answers[n] = parsed(raw[n], sent[n], time.monotonic() - sent[n])
                poll.unregister(fd)
                del number[fd]
    poll.close()
    for connection in connections:
        connection.close()
    return answers


def is_whole(raw: bytes) -> bool:
    """Whether a response with a Content-Length has ended."""
    head, end, body = raw.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def parsed(raw: bytes, sent_at: float, seconds: float) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in fields}
    status = int(first.split()[1]) if first.startswith("HTTP/1.1 ") else 0
    return Answer(status, headers, body, sent_at, seconds)
