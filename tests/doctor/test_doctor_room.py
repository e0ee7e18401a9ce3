"""Memory and disks against what a pairing takes, and the two ports."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.loopback import Loopback

from neuroscope import settings
from neuroscope.doctor.ports import look_at_port, port_checks
from neuroscope.doctor.room import Place, disk_checks, memory_check, places
from neuroscope.doctor.sizes import MODELS, serving_bytes
from neuroscope.doctor.torch_build import Device, Torch
from neuroscope.memory import Memory

NO_GPU = Torch("2.13.0", "CPU only")
GB = 1_000_000_000


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*os.environ]:
        if name.startswith(("NEUROSCOPE_", "HF_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))


def test_gemma_needs_what_its_weights_sae_and_process_add_up_to() -> None:
    gemma = settings.load("gemma-2-2b-it")
    weights, sae = 2 * 2_614_341_888, 2 * 2304 * 16384 * 4
    assert serving_bytes(gemma) == weights + sae + 900_000_000 + 512_000_000
    lighter = settings.load("gemma-2-2b-it", overrides={"quantization": "int4", "serve.decoder": False})
    assert serving_bytes(lighter) == round(2_614_341_888 * 6 / 8) + sae // 2 + 900_000_000 + 512_000_000
    gguf = settings.load("smollm2-135m", overrides={"quantization": "q4_k_m"})
    assert 1.4 * GB < (serving_bytes(gguf) or 0) < 1.6 * GB
    as_it_is = settings.load("smollm2-135m", overrides={"backend": "llamacpp"})
    assert serving_bytes(as_it_is, 98_000_000) == (serving_bytes(as_it_is, 97_000_000) or 0) + 1_000_000
    unknown = settings.load("gemma-2-2b-it", overrides={"model": "org/other"})
    assert (serving_bytes(unknown), serving_bytes(unknown, 5 * GB)) == (
        None,
        5 * GB + 900_000_000 + 512_000_000,
    )


def test_every_shipped_pairings_model_has_its_size() -> None:
    for name in settings.pairings():
        assert serving_bytes(settings.load(name)), name
    assert MODELS["hf://google/gemma-2-2b"].bytes == 2 * MODELS["hf://google/gemma-2-2b-it"].bytes, "float32"


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (Memory(20 * GB, 32 * GB), "ok", "about 6.9 GB to serve gemma-2-2b-it in bfloat16"),
        (Memory(2 * GB, 32 * GB), "note", "close other programs first"),
        (Memory(2 * GB, 4 * GB), "problem", "fewer bits or a smaller pairing"),
        (Memory(None, 32 * GB), "ok", "about 6.9 GB"),
    ],
)
def test_memory_is_held_against_what_the_pairing_takes(found: Memory, status: str, words: str) -> None:
    check = memory_check(settings.load("gemma-2-2b-it"), NO_GPU, found)
    assert check.status == status
    assert words in check.wanted
    assert check.next == ("neuroscope serve --quantization int4" if status == "problem" else None)


def test_a_gpus_memory_counts_where_it_is_used() -> None:
    gpu = Torch("2.13.0", "CUDA 12.8", (Device("cuda:0", "small", 1 * GB, 2 * GB),))
    gemma = settings.load("gemma-2-2b-it")
    assert memory_check(gemma, gpu, Memory(20 * GB, 32 * GB)).status == "problem"
    on_cpu = settings.load("gemma-2-2b-it", overrides={"device": "cpu"})
    assert memory_check(on_cpu, gpu, Memory(20 * GB, 32 * GB)).status == "ok"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free", "status"), [(9 * GB, "ok"), (7 * GB, "note"), (5 * GB, "problem")], ids=["room", "tight", "full"]
)
def test_a_disk_is_held_against_all_that_is_still_to_come_on_it(
    free: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 * GB, 0, free))
    wanted = [
        Place("cache", tmp_path / "not" / "yet", 5 * GB, "NEUROSCOPE_CACHE"),
        Place("results", tmp_path, 1_500_000_000, ""),
    ]
    first, second = disk_checks(wanted)
    assert (first.status, second.status) == (status, status)
    assert first.wanted.startswith("about 5.0 GB still to come, about 6.5 GB in all on this disk")
    if status == "problem":
        assert first.next == "export NEUROSCOPE_CACHE=/path/on/another/disk"


def test_a_place_that_is_a_file_or_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    (check,) = disk_checks([Place("cache", file / "below", 0, "NEUROSCOPE_CACHE")])
    assert (check.status, check.found) == ("problem", f"{file} is a file")
    monkeypatch.setattr(os, "access", lambda *_: False)  # a disk that is read-only, whoever asks
    (check,) = disk_checks([Place("cache", tmp_path, 0, "NEUROSCOPE_CACHE")])
    assert (check.status, check.found) == ("problem", f"{tmp_path} cannot be written")


def test_what_is_still_to_come_is_only_what_is_not_here(tmp_path: Path) -> None:
    tiny = settings.load("smollm2-135m", overrides={"results": f"{tmp_path}/{{pairing}}"})
    cache, results = places(tiny)
    assert (cache.path, results.path) == (tmp_path / "cache", tmp_path / "smollm2-135m")
    assert cache.needed > 600_000_000, "the file, its texts, and its weights as they are read"
    results.path.mkdir()
    (results.path / "results.duckdb").touch()
    converted = tmp_path / "cache/converted/SmolLM2-135M-Instruct.Q4_1-0123456789abcdef"
    converted.mkdir(parents=True)
    (converted / "converted.json").touch()
    less, results = places(tiny)
    assert (results.needed, cache.needed - less.needed) == (0, 4 * 134_515_008)


def _answering(status: int, body: bytes, **headers: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        keys: list[str | None] = []  # noqa: RUF012

        def do_GET(self) -> None:
            self.keys.append(self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler


READY = b'{"status": "degraded", "model": "tiny", "sae": {"id": "x"}}'


@pytest.mark.parametrize(
    ("status", "body", "headers", "state", "words"),
    [
        (200, READY, {}, "ours", "this project's server: degraded, model tiny"),
        (503, b'{"status": "loading", "stage": "model"}', {}, "ours", "this project's server: loading"),
        (401, b"{}", {"x_request_id": "req_1"}, "ours", "a server that asks for a key"),
        (401, b"{}", {}, "taken", "another program answers there (HTTP 401)"),
        (200, b"<html>", {}, "taken", "another program answers there (HTTP 200)"),
        (200, b"[" * 200_000, {}, "taken", "another program"),
        (200, b'{"status": 7, "sae": 1}', {}, "taken", "another program"),
        (200, b"\xff\xfe", {}, "taken", "another program"),
    ],
)
def test_whoever_answers_at_a_port_is_told_apart(
    status: int, body: bytes, headers: dict[str, str], state: str, words: str
) -> None:
    with Loopback(_answering(status, body, **headers)) as other:
        port = look_at_port("127.0.0.1", other.port)
    assert port.state == state
    assert words in port.words


def test_the_key_is_sent_only_to_what_answered_as_our_server_does() -> None:
    for headers, sent in (({}, [None]), ({"x_request_id": "req_1"}, [None, "Bearer open-sesame"])):
        handler = _answering(401, b"{}", **headers)
        with Loopback(handler) as other:
            look_at_port("127.0.0.1", other.port, "open-sesame")
        assert handler.keys == sent  # type: ignore[attr-defined]


@pytest.fixture
def listener() -> Iterator[Callable[[bytes], int]]:
    """A program that listens, sends some bytes to whoever comes, and leaves."""
    import threading

    open_: list[socket.socket] = []

    def start(says: bytes) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        open_.append(server)

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for server in open_:
        server.close()


def test_a_program_that_speaks_no_http_is_somebody_elses(listener: Callable[[bytes], int]) -> None:
    port = look_at_port("127.0.0.1", listener(b"SSH-2.0-OpenSSH_9.2\r\n"))
    assert port.state == "taken"


def test_a_taken_port_is_a_problem_with_a_command_that_avoids_it() -> None:
    with Loopback(_answering(200, b"{}")) as other, socket.create_server(("127.0.0.1", 0)) as free:
        free_port = int(free.getsockname()[1])
        free.close()
        chat, features = look_at_port("127.0.0.1", other.port), look_at_port("127.0.0.1", free_port)
        first, second = port_checks("127.0.0.1", chat, features)
    assert (first.status, second.status) == ("problem", "ok")
    assert first.next is not None
    assert first.next.startswith("neuroscope serve --port ")
    assert "--features-port" not in first.next


def test_a_host_that_is_not_this_machines_is_a_problem() -> None:
    port = look_at_port("203.0.113.7", 18300)
    assert port.state == "closed"
    check: Any = port_checks("203.0.113.7", port, port)[0]
    assert (check.status, check.next) == ("problem", "neuroscope serve --host 127.0.0.1")
