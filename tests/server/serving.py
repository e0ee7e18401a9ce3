"""Runs the server as users do: a gunicorn process on free ports, with a configuration of its own."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2 as httpx
import yaml

ROOT = Path(__file__).parents[2]

T = TypeVar("T")

http = httpx.Client(verify=False, timeout=120)
"""One client for all: making one reads every certificate of the machine."""


def wait_until(condition: Callable[[], T], *, seconds: float = 60.0, what: str = "the condition") -> T:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(0.01)


def free_ports(count: int = 2) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


def opens(port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def write_config(folder: Path, *, pairing: dict[str, Any] | None = None, **sections: Any) -> Path:
    """A configuration tree of its own in `folder`; returns its config.yaml."""
    (folder / "config/pairings").mkdir(parents=True, exist_ok=True)
    if not (folder / "workflow").exists():
        (folder / "workflow").symlink_to(ROOT / "workflow")
    pairing = pairing or {
        "description": "no model at all",
        "model": "nowhere/model",
        "layer": 7,
        "dtype": "float32",
        "licence": "none",
        "sae": {"source": "nowhere/sae", "format": "gemma_scope", "width": 32},
    }
    (folder / "config/pairings/tiny.yaml").write_text(yaml.safe_dump(pairing))
    path = folder / "config/config.yaml"
    path.write_text(yaml.safe_dump({"pairing": "tiny", **sections}))
    return path


@dataclass
class Server:
    """A running server process."""

    process: subprocess.Popen[bytes]
    port: int
    features_port: int
    log: Path

    @property
    def chat_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def features_url(self) -> str:
        return f"http://127.0.0.1:{self.features_port}"

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def chat(self, content: str, **more: Any) -> httpx.Response:
        """One question, answered whole."""
        body = {"messages": [{"role": "user", "content": content}], **more}
        return http.post(f"{self.chat_url}/v1/chat/completions", json=body)

    def get(self, path: str, **more: Any) -> httpx.Response:
        """From the features port."""
        return http.get(f"{self.features_url}{path}", **more)

    def wait_ready(self, seconds: float = 300.0) -> None:
        wait_until(
            lambda: "Neuroscope is ready." in self.output or self._ended(), seconds=seconds, what="readiness"
        )

    def wait_idle(self) -> None:
        idle = {"running": False, "waiting": 0}
        wait_until(lambda: self.get("/readyz").json()["queue"] == idle, what="an idle model")

    def stop(self, sig: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(seconds)

    def answers(self) -> bool:
        """Whether the chat's port is open."""
        return opens(self.port)

    def _ended(self) -> bool:
        assert self.process.poll() is None, f"the server ended:\n{self.output}"
        return False


def launch(
    config: Path,
    app: str,
    log: Path,
    *flags: str,
    env: dict[str, str] | None = None,
    conf: bool = True,
    pipe: bool = False,
    redirections: str = "",
) -> subprocess.Popen[bytes]:
    """`python -m gunicorn APP` with that configuration. Its output goes to `log` or a pipe, unless redirected."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("NEUROSCOPE_", "GUNICORN_", "WEB_CONC"))}
    environment = {
        **base,
        "NEUROSCOPE_CONFIG": str(config),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT)]),  # of this checkout
        "OMP_NUM_THREADS": "1",
        **(env or {}),
    }
    conf_flags = ["-c", str(ROOT / "gunicorn.conf.py")] if conf else []
    command = [sys.executable, "-W", "default", "-m", "gunicorn", *conf_flags, app, *flags]
    if redirections:
        command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *command]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=config.parents[1],
            stdout=subprocess.PIPE if pipe else output,
            stderr=subprocess.STDOUT if pipe else output,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - no thread yet
        )


def _end_with_parent() -> None:
    """Have the kernel end this process when the test run is killed: no server outlives its tests."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextmanager
def serving(
    folder: Path,
    *,
    app: str = "scripted_wsgi",
    env: dict[str, str] | None = None,
    ready: bool = True,
    pairing: dict[str, Any] | None = None,
    serve: dict[str, Any] | None = None,
    **sections: Any,
) -> Iterator[Server]:
    """A server in `folder`, stopped at the end. `serve` are settings of that section."""
    port, features_port = free_ports()
    serve = {"port": port, "features_port": features_port, **(serve or {})}
    config = write_config(folder, pairing=pairing, serve=serve, **sections)
    log = folder / "server.log"
    server = Server(launch(config, app, log, env=env), port, features_port, log)
    try:
        if ready:
            server.wait_ready()
        yield server
    finally:
        server.stop()


@dataclass(frozen=True)
class Event:
    """A server-sent event, or a comment."""

    name: str
    id: str | None
    data: Any
    comment: str | None = None


class EventStream:
    """Reads server-sent events from a raw socket, one at a time."""

    def __init__(
        self, port: int, path: str = "/v1/features/stream", headers: dict[str, str] | None = None
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()
        self._buffer = b""

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def blocks(self) -> Iterator[Event]:
        """Every block, comments among them, until the end."""
        for block in self._raw_blocks():
            fields: dict[str, str] = {}
            comment = None
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                if name == "":
                    comment = value.strip()
                else:
                    fields[name] = value.removeprefix(" ")
            data = fields.get("data")
            parsed = json.loads(data) if data is not None and data != "[DONE]" else data
            yield Event(fields.get("event", "message"), fields.get("id"), parsed, comment)

    def events(self) -> Iterator[Event]:
        """Every event with data, until the end."""
        return (block for block in self.blocks() if block.data is not None)

    def take(self, count: int) -> list[Event]:
        events = self.events()
        return [next(events) for _ in range(count)]

    def until(self, name: str) -> list[Event]:
        """The events up to and with the first one of that name."""
        taken = []
        for event in self.events():
            taken.append(event)
            if event.name == name:
                return taken
        raise AssertionError(f"the stream ended without {name}: {taken}")

    def _raw_blocks(self) -> Iterator[bytes]:
        while True:
            while b"\n\n" in self._buffer:
                block, _, self._buffer = self._buffer.partition(b"\n\n")
                yield block
            size = self._file.readline().strip()
            if not size or int(size, 16) == 0:
                return
            self._buffer += self._file.read(int(size, 16))
            self._file.readline()


def raw_request(port: int, request: bytes, *, seconds: float = 60.0) -> bytes:
    """The one answer to these bytes, whose length it states, or everything until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(request)
        answer = b""
        while not _is_whole(answer) and (piece := connection.recv(65536)):
            answer += piece
        return answer


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def status_of(answer: bytes) -> int:
    match = re.match(rb"HTTP/1\.[01] (\d+)", answer)
    assert match is not None, answer[:200]
    return int(match[1])
