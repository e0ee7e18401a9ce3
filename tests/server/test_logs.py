"""The log: one line an event, with the request's id, and nothing in it that a client said."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from serving import (
    EventStream,
    Server,
    free_ports,
    http,
    launch,
    raw_request,
    serving,
    wait_until,
    write_config,
)

from neuroscope.cli.app import main
from neuroscope.server.outlet import LIMIT

CANARY = "canary7f3a"
KEY = f"key-{CANARY}"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


def parsed(output: str) -> list[dict[str, Any]]:
    """Every line as JSON; one that is none fails here."""
    lines = [json.loads(line) for line in output.splitlines()]
    assert all(isinstance(line, dict) and line["message"] and line["level"] for line in lines)
    return lines


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that logs in JSON at the most talkative level, and asks for a key."""
    folder = tmp_path_factory.mktemp("logs")
    told = {"log_format": "json", "log_level": "debug", "queue": 4, "max_streams": 40}
    with serving(folder, serve=told, env={"NEUROSCOPE_API_KEY": KEY}) as running:
        yield running


def canaries(server: Server) -> None:
    """Requests of every kind that hold the canary wherever a client can put it."""
    chat = f"{server.chat_url}/v1/chat/completions"
    messages = [{"role": "system", "content": CANARY}, {"role": "user", "content": f"a {CANARY} b"}]
    for more in (
        {},
        {"stream": True},
        {"user": CANARY},
        {"stop": [CANARY]},
        {"model": CANARY},
        {"n": CANARY},
    ):
        http.post(chat, json={"messages": messages, **more}, headers=AUTHORIZED)
    failing = [{"role": "user", "content": f"[fail=1] a {CANARY}"}]
    for stream in (False, True):
        http.post(chat, json={"messages": failing, "stream": stream}, headers=AUTHORIZED)
    http.post(chat, json={"messages": [{"role": CANARY, "content": CANARY}]}, headers=AUTHORIZED)
    http.post(chat, json={"messages": [{"role": "user", "content": CANARY * 2000}]}, headers=AUTHORIZED)
    http.post(
        chat, content=f'{{"messages": {CANARY}', headers={"Content-Type": "application/json", **AUTHORIZED}
    )
    http.post(chat, content=CANARY, headers={"Content-Type": f"text/{CANARY}", **AUTHORIZED})
    http.post(f"{server.features_url}/v1/features/encode", json={"text": CANARY}, headers=AUTHORIZED)
    for path in (
        f"/v1/features/stream?ticket={CANARY}",
        f"/v1/features/search?q={CANARY}",
        f"/?key={CANARY}",
    ):
        http.head(f"{server.features_url}{path}", headers=AUTHORIZED)
    http.get(f"{server.chat_url}/v1/models", headers={"Authorization": f"Bearer wrong-{CANARY}"})
    http.get(f"{server.chat_url}/v1/models", headers={"Cookie": CANARY, "User-Agent": CANARY, **AUTHORIZED})
    http.get(f"{server.chat_url}/v1/models", headers={"Origin": f"http://{CANARY}", "x-request-id": CANARY})
    for request in (
        f"GET /{CANARY} {CANARY}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nBad {CANARY}: x\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {CANARY}\0\r\n\r\n",
        f"GET /?ticket={CANARY} HTTP/9.9\r\nHost: localhost\r\n\r\n",
        f"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {CANARY}\r\n\r\n",
    ):
        raw_request(server.port, request.encode())


def test_nothing_a_client_said_is_told_to_anyone_else(quiet: Server) -> None:
    canaries(quiet)
    process = psutil.Process(quiet.process.pid)
    seen = [" ".join(p.cmdline()) for p in (process, *process.children(recursive=True))]
    for url in (quiet.chat_url, quiet.features_url):
        seen += [
            http.get(f"{url}{path}", headers=AUTHORIZED).text for path in ("/metrics", "/readyz", "/healthz")
        ]
    wait_until(lambda: quiet.output.count("generation_failed") == 2)
    lines = parsed(quiet.output)
    assert CANARY not in quiet.output
    assert not any(CANARY in text for text in seen)
    failures = [line for line in lines if line["logger"] == "neuroscope.server.generation"]
    assert len(failures) == 2
    for line in failures:
        assert "in _generate\n" in line["exc_info"], "where it failed is told"
        assert line["exc_info"].splitlines()[-1].startswith("RuntimeError: (what it says is withheld")


def test_every_line_of_a_request_has_its_id(quiet: Server) -> None:
    url = f"{quiet.chat_url}/v1/chat/completions"
    body = {"messages": [{"role": "user", "content": "[fail=2] one two three"}]}
    response = http.post(f"{url}?ticket=1", json=body, headers=AUTHORIZED)
    request_id = response.headers["x-request-id"]
    lines = wait_until(lambda: [x for x in _whole(quiet) if x["request_id"] == request_id and "status" in x])
    (access,) = lines
    assert access["method"] == "POST"
    assert access["path"] == access["route"] == "/v1/chat/completions"
    assert access["status"] == 500
    assert access["code"] == "generation_failed"
    assert access["tokens"] == 2
    assert access["bytes"] == len(response.content)
    assert access["seconds"] >= 0
    (failure,) = [x for x in parsed(quiet.output) if x["request_id"] == request_id and x["level"] == "ERROR"]
    assert failure["completion_id"] == access["completion_id"]


def test_one_connection_carries_many_requests_and_none_has_anothers_id(quiet: Server) -> None:
    ids = [
        http.get(f"{quiet.chat_url}/v1/models", headers=AUTHORIZED).headers["x-request-id"] for _ in range(5)
    ]
    refused = http.get(f"{quiet.chat_url}/v1/models").headers["x-request-id"]
    wait_until(lambda: refused in quiet.output)
    lines = {line["request_id"]: line for line in parsed(quiet.output)}
    assert {lines[i]["status"] for i in ids} == {200}
    assert (lines[refused]["status"], lines[refused]["code"]) == (401, "invalid_api_key")


def test_every_line_is_json_under_load(quiet: Server) -> None:
    def ask(number: int) -> int:
        content = f"[fail=3] {number} b c d" if number % 3 == 0 else f"{number} " + "w " * 20
        body = {"messages": [{"role": "user", "content": content}], "stream": number % 2 == 0}
        return http.post(f"{quiet.chat_url}/v1/chat/completions", json=body, headers=AUTHORIZED).status_code

    before = len([line for line in _whole(quiet) if line.get("route") == "/v1/chat/completions"])
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(ask, range(60)))
    assert set(statuses) <= {200, 429, 500}
    wait_until(
        lambda: len([x for x in _whole(quiet) if x.get("route") == "/v1/chat/completions"]) == before + 60
    )
    parsed(quiet.output)


def test_the_start_and_the_end_are_json_too(tmp_path: Path) -> None:
    with serving(tmp_path, serve={"log_format": "json"}, env={"PYTHONWARNINGS": "always"}) as server:
        assert server.stop() == 0
        lines = parsed(server.output)
    (ready,) = [line for line in lines if line.get("event") == "ready"]
    assert ready["message"] == "Neuroscope is ready."
    assert ready["chat"] == f"{server.chat_url}/v1"
    assert ready["missing"] == []
    assert {line["logger"] for line in lines} >= {"gunicorn.error", "neuroscope"}


@pytest.mark.parametrize(
    ("flags", "env", "reason"),
    [
        (["-w", "2"], {}, "2 workers would each load the model"),
        (["--preload"], {}, "outside a gunicorn worker"),
        ([], {"SCRIPTED_LOAD_ERROR": "The model is on the moon."}, "The model is on the moon."),
        (["-b", "0.0.0.0:0", "-b", "127.0.0.1:0"], {}, "Set NEUROSCOPE_API_KEY"),
    ],
    ids=["workers", "preload", "load", "open"],
)
def test_a_refused_start_is_json(tmp_path: Path, flags: list[str], env: dict[str, str], reason: str) -> None:
    chat, features = free_ports()
    config = write_config(tmp_path, serve={"port": chat, "features_port": features, "log_format": "json"})
    log = tmp_path / "log"
    process = launch(config, "scripted_wsgi", log, *flags, env=env)
    try:
        assert process.wait(120) != 0
    finally:
        process.kill()
        process.wait()
    assert any(reason in line["message"] for line in parsed(log.read_text()) if line["level"] == "ERROR")


def test_the_command_refuses_in_the_form_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (other,) = free_ports(1)
        config = write_config(tmp_path, serve={"port": port, "features_port": other})
        monkeypatch.setenv("NEUROSCOPE_CONFIG", str(config))
        assert main(["serve", "--check", "--log-format", "json"]) == 1
        (line,) = parsed(capsys.readouterr().err)
        assert line["message"] == f"Port {port} on 127.0.0.1 is in use. Choose another with --port N."
        assert main(["serve", "--check"]) == 1
        assert capsys.readouterr().err.startswith("neuroscope: Port")


def test_text_lines_are_not_broken_by_what_is_in_them(server: Server) -> None:
    forged = (
        b"GET /x%0a2026-01-01%20[1]%20[INFO]%20forged%1b[31m%c2%85%e2%80%a8 HTTP/1.1\r\nHost: localhost\r\n"
    )
    raw_request(server.port, forged + b"Connection: close\r\n\r\n")
    line = wait_until(lambda: next((x for x in server.output.splitlines() if "forged" in x), None))
    assert re.match(r"\d{4}-\d\d-\d\d \S+ \[\d+\] \[INFO\] \[req_[0-9a-f]{24}\] GET /x\\n2026-01-01", line)
    assert r"forged\x1b[31m\x85\u2028 404 " in line


def test_prompts_are_logged_when_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, serve={"log_format": "json", "log_prompts": True}) as server:
        server.chat(f"a {CANARY}")
        server.chat(f"[fail=0] {CANARY} é")
        wait_until(lambda: "generation_failed" in server.output)
        lines = parsed(server.output)
    prompts = [line["message"] for line in lines if line["message"].startswith("prompt: ")]
    assert prompts[0] == f'prompt: [{{"role": "user", "content": "a {CANARY}"}}]'
    assert prompts[1].endswith('é"}]')
    (failure,) = [line for line in lines if line["level"] == "ERROR"]
    assert CANARY in failure["exc_info"]


def started(tmp_path: Path, **streams: Any) -> Server:
    """A server with these standard streams, that answers."""
    chat, features = free_ports()
    config = write_config(tmp_path, serve={"port": chat, "features_port": features})
    log = tmp_path / "log"
    log.touch()
    server = Server(launch(config, "scripted_wsgi", log, **streams), chat, features, log)
    wait_until(lambda: server.answers() and server.get("/readyz").status_code == 200)
    return server


def test_a_reader_of_the_log_that_is_stuck_stops_nothing(tmp_path: Path) -> None:
    server = started(tmp_path, pipe=True)
    assert server.process.stdout is not None
    try:
        for _ in range(2000):  # 200 kB of log, where a pipe holds 64
            assert server.get("/healthz").status_code == 200
        assert server.chat("still here").status_code == 200
        found, pipe = b"", server.process.stdout
        os.set_blocking(pipe.fileno(), False)

        def told() -> bool:
            nonlocal found
            found += pipe.read() or b""
            return re.search(rb"\d+ lines of the log were dropped", found) is not None

        wait_until(told, what="word of the lost lines")
        assert found.count(b"GET /healthz 200") > LIMIT
        for _ in range(700):
            server.get("/healthz")
        assert server.stop() == 0, "nor its end"
    finally:
        server.stop(signal.SIGKILL)
        server.process.stdout.close()


def test_a_reader_of_the_log_that_has_gone_ends_nothing(tmp_path: Path) -> None:
    server = started(tmp_path, pipe=True)
    assert server.process.stdout is not None
    try:
        server.process.stdout.readline()
        server.process.stdout.close()  # as `| head -1` does
        assert server.chat("[fail=1] a b").status_code == 500
        assert server.chat("still here").status_code == 200
        assert server.stop() == 0
    finally:
        server.stop(signal.SIGKILL)


def test_without_standard_streams_it_serves_and_writes_into_nothing_else(tmp_path: Path) -> None:
    """A socket that got descriptor 2 would be sent the log."""
    server = started(tmp_path, redirections="0<&- 1>&- 2>&-")
    try:
        with EventStream(server.features_port) as events:
            next(events.blocks())
            assert server.chat("[fail=1] a b").status_code == 500
            assert server.chat("a b").status_code == 200
            assert events.until("generation_error")
            assert events.until("generation_complete")
        master = psutil.Process(server.process.pid)
        for process in (master, *master.children()):
            opened = {n: os.readlink(f"/proc/{process.pid}/fd/{n}") for n in (0, 1, 2)}
            assert set(opened.values()) == {"/dev/null"}, opened
        assert server.stop() == 0
    finally:
        server.stop(signal.SIGKILL)


def _whole(server: Server) -> list[dict[str, Any]]:
    """The lines so far but for one that is being written."""
    return parsed(server.output.rpartition("\n")[0])
