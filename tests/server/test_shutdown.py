"""The end of the process: soon, with a last word for everyone, and with nothing left behind."""

from __future__ import annotations

import json
import runpy
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest
from serving import ROOT, EventStream, Server, free_ports, http, launch, serving, wait_until, write_config

from neuroscope import settings
from neuroscope.server import process

SOON = 60.0
"""Seconds that the slowest machine may take to end the server: half of what the scripted work would take."""
PATIENT = {"GUNICORN_CMD_ARGS": "--graceful-timeout 120"}
"""gunicorn would kill after three seconds what does not end by itself. Here it waits, so that the test can tell."""


def assert_ends_by_itself(server: Server, sign: int = signal.SIGTERM) -> None:
    """However slow the machine: long before the work would be done, and without being killed."""
    workers = children(server)
    started = time.monotonic()
    assert server.stop(sign, seconds=120) == 0
    assert time.monotonic() - started < SOON
    assert not any(worker.is_running() for worker in workers)
    assert "SIGKILL" not in server.output
    assert "graceful timeout" not in server.output


def children(server: Server) -> list[psutil.Process]:
    return list(psutil.Process(server.process.pid).children(recursive=True))


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_the_end_comes_soon_with_a_last_event_for_everyone(tmp_path: Path, sign: int) -> None:
    with serving(tmp_path, serve={"max_streams": 210}, env=PATIENT) as server:
        streams = [EventStream(server.features_port) for _ in range(200)]
        openings = [stream.blocks() for stream in streams]
        for blocks in openings:
            next(blocks)
        stuck = socket.create_connection(("127.0.0.1", server.features_port))
        stuck.sendall(b"GET /v1/features/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle = socket.create_connection(("127.0.0.1", server.port))
        content = b"[delay=0.5] " + b"w " * 240
        body = b'{"stream": true, "messages": [{"role": "user", "content": "' + content + b'"}]}'
        chat = socket.create_connection(("127.0.0.1", server.port))
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        chat.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        streams[0].take(2)
        assert_ends_by_itself(server, sign)
        for stream in streams:
            *_, complete, shutdown = list(stream.events())
            assert complete.data["finish_reason"] == "shutdown"
            assert shutdown.name == "shutdown"
            stream.close()
        answer = b""
        while piece := chat.recv(65536):
            answer += piece
        assert b'"code":"shutdown"' in answer
        assert b"data: [DONE]" in answer
        for connection in (stuck, idle, chat):
            connection.close()
        assert "Traceback" not in server.output


def test_an_answer_may_be_finished_when_the_drain_time_allows(tmp_path: Path) -> None:
    with serving(tmp_path, serve={"drain_s": 30}) as server:
        body = {"messages": [{"role": "user", "content": "[delay=0.2] a b c d e"}], "stream": True}
        with http.stream("POST", f"{server.chat_url}/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert "data: [DONE]" in rest
        assert any('"content":" e"' in line for line in rest)
        assert server.process.wait(20) == 0


def test_a_whole_answer_in_the_making_gets_a_503(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        body = b'{"messages": [{"role": "user", "content": "[prefill=60] never"}]}'
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as waiting:
            waiting.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: server.get("/readyz").json()["queue"]["running"], what="the model to be busy")
            server.stop()
            answer = waiting.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"code":"shutdown"' in answer


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_token_that_does_not_come_keeps_nobody_waiting(tmp_path: Path, stream: bool) -> None:
    with serving(tmp_path, env=PATIENT) as server, EventStream(server.features_port) as events:
        content = {"role": "user", "content": "[delay=120] never"}
        body = json.dumps({"messages": [content], "stream": stream}).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as waiting:
            waiting.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: server.get("/readyz").json()["queue"]["running"], what="the model to be busy")
            assert_ends_by_itself(server)
            answer = b""
            while piece := waiting.recv(65536):
                answer += piece
        assert b'"code":"shutdown"' in answer
        assert answer.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 503")
        assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") or not stream
        complete, shutdown = events.events()
        assert complete.data["finish_reason"] == "shutdown"
        assert shutdown.name == "shutdown"


@pytest.mark.parametrize("early", [True, False], ids=["booting", "loading"])
def test_it_ends_before_it_is_ready(tmp_path: Path, early: bool) -> None:
    with serving(tmp_path, env={"SCRIPTED_LOAD_SECONDS": "120", **PATIENT}, ready=False) as server:
        wait_until(server.answers, what="a port")
        if not early:
            assert server.get("/readyz").json()["status"] == "loading"
        assert_ends_by_itself(server)


def test_a_worker_without_handlers_of_its_own_ends_at_once(tmp_path: Path) -> None:
    """Between its fork and its own handlers a worker has the master's, which would only note the signal."""
    slow = tmp_path / "slow.conf.py"
    conf = (ROOT / "gunicorn.conf.py").read_text()
    slow.write_text(
        f"{conf}\nof_conf = post_fork\n\n\ndef post_fork(server, worker):\n    import time\n\n"
        '    of_conf(server, worker)\n    print("no handlers yet", flush=True)\n    time.sleep(120)\n'
    )
    port, features_port = free_ports()
    config = write_config(tmp_path, serve={"port": port, "features_port": features_port})
    log = tmp_path / "log"
    started = launch(config, "scripted_wsgi", log, "-c", str(slow), "--graceful-timeout", "120", conf=False)
    server = Server(started, port, features_port, log)
    try:
        wait_until(lambda: "no handlers yet" in server.output, what="the fork")
        assert_ends_by_itself(server)
    finally:
        server.stop()


def test_what_is_waited_for_at_the_end_is_less_than_three_seconds() -> None:
    longest = process.LOOK_SECONDS + process.TOKEN_PATIENCE_S + process.RESPONSE_PATIENCE_S
    assert longest < 2.5
    conf = runpy.run_path(str(ROOT / "gunicorn.conf.py"))
    assert conf["graceful_timeout"] == 3 + settings.load().serve.drain_s


def test_a_killed_master_leaves_no_worker_behind(tmp_path: Path) -> None:
    with serving(tmp_path, env=PATIENT) as server:
        (worker,) = children(server)
        server.process.kill()
        server.process.wait()
        worker.wait(SOON)
        assert not server.answers()
