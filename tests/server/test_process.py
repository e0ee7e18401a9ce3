"""The process: how it starts, refuses to start, and loads behind a healthy port. Its end is in test_shutdown.py."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving import ROOT, EventStream, Server, free_ports, http, launch, serving, wait_until, write_config


def refused_start(folder: Path, *flags: str, conf: bool = True, **env: str) -> tuple[int, str]:
    """Exit status and output of a start that must fail."""
    chat, features = free_ports()
    config = write_config(folder, serve={"port": chat, "features_port": features})
    log = folder / "log"
    process = launch(config, "scripted_wsgi", log, *flags, env=env, conf=conf)
    try:
        return process.wait(120), log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("flags", "env", "conf", "reason"),
    [
        (["-k", "sync"], {}, True, "worker is of the kind 'sync', not gevent"),
        (["-k", "gthread", "--chdir", "/"], {}, True, "worker is of the kind 'gthread', not gevent"),
        (["-k", "gevent_pywsgi"], {}, True, "worker is of the kind 'gevent_pywsgi', not gevent"),
        (["--reuse-port"], {}, True, "a second server could share its ports"),
        (["--max-requests", "9"], {}, True, "it would end every stream and load the model again"),
        (["--keyfile", __file__], {}, True, "a proxy before it can speak TLS"),
        (["-w", "2"], {}, True, "2 workers would each load the model"),
        (["-b", "unix:tmp.sock", "-b", "127.0.0.1:0"], {}, True, "it needs two TCP ports"),
        (["--preload"], {}, True, "outside a gunicorn worker (--preload, or another server)"),
        (["-b", "127.0.0.1:0"], {}, True, "it listens on 1 addresses"),
        (["-b", "127.0.0.1:0"], {}, False, "worker is of the kind 'sync', not gevent"),
        (["-b", "127.0.0.1:0", "-k", "gevent"], {"WEB_CONCURRENCY": "3"}, False, "3 workers would each load"),
    ],
    ids=str,
)
def test_a_wrong_start_is_refused_with_the_right_command(
    tmp_path: Path, flags: list[str], env: dict[str, str], conf: bool, reason: str
) -> None:
    status, output = refused_start(tmp_path, *flags, conf=conf, **env)
    assert status != 0
    assert reason in output
    place = f"cd {tmp_path} && " if "--chdir" in flags else ""
    assert f" run:\n\n    {place}gunicorn -c gunicorn.conf.py neuroscope.wsgi\n" in output
    assert "Traceback" not in output
    assert output.count("Not started") == 1


def test_an_address_others_can_reach_is_refused_without_a_key(tmp_path: Path) -> None:
    status, output = refused_start(tmp_path, "-b", "0.0.0.0:0", "-b", "127.0.0.1:0")
    assert status != 0
    assert "Binding to 0.0.0.0 lets other machines read every conversation" in output
    assert "Set NEUROSCOPE_API_KEY" in output
    assert "Traceback" not in output


def test_a_wrong_setting_is_named_without_a_traceback(tmp_path: Path) -> None:
    status, output = refused_start(tmp_path, NEUROSCOPE_PAIRING="tiney")
    assert status != 0
    assert "There is no pairing 'tiney'. Did you mean tiny?" in output
    assert "Traceback" not in output


def test_a_host_that_could_never_match_is_named(tmp_path: Path) -> None:
    status, output = refused_start(tmp_path, NEUROSCOPE_ALLOWED_HOSTS="http://box.example")
    assert status != 0
    assert "NEUROSCOPE_ALLOWED_HOSTS: serve.allowed_hosts.0 is 'http://box.example', must be" in output
    assert "Traceback" not in output


def test_what_cannot_be_loaded_ends_the_server_with_its_reason(tmp_path: Path) -> None:
    status, output = refused_start(
        tmp_path, SCRIPTED_LOAD_ERROR="The model is on the moon. Fetch it with `rocket`."
    )
    assert status != 0
    assert "Not started: The model is on the moon. Fetch it with `rocket`." in output
    assert "Traceback" not in output


def test_asking_the_module_for_anything_else_starts_nothing() -> None:
    code = "import neuroscope.wsgi, sys; assert 'torch' not in sys.modules; neuroscope.wsgi.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "has no attribute 'nothing'" in done.stderr


def test_it_is_alive_and_not_ready_while_it_loads(tmp_path: Path) -> None:
    with serving(tmp_path, env={"SCRIPTED_LOAD_SECONDS": "5"}, ready=False) as server:
        wait_until(server.answers, seconds=60, what="a port")
        assert http.get(f"{server.chat_url}/healthz").status_code == 200
        wait_until(lambda: server.get("/readyz").json()["stage"] != "starting", what="loading")
        ready = http.get(f"{server.chat_url}/readyz")
        assert ready.status_code == 503
        assert ready.json()["status"] == "loading"
        assert ready.json()["stage"] == "reading the script"
        for response in (
            server.chat("too early"),
            http.get(f"{server.chat_url}/v1/models"),
            server.get("/v1/features/labels"),
        ):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "loading"
            assert int(response.headers["retry-after"]) > 0
        with EventStream(server.features_port) as early:
            assert early.status == 200
            server.wait_ready()
            assert server.get("/readyz").status_code == 200
            server.chat("now")
            assert early.until("generation_complete")


def test_the_banner_says_where_and_what(server: Server) -> None:
    output = server.output
    for line in (
        f"chat      {server.chat_url}/v1",
        f"features  {server.features_url}/v1/features/stream",
        "model     scripted/model on none, none",
        "SAE       scripted/sae, layer 7, 32 features",
        "filter    frequency, threshold 0.5, top 10",
        "labels    28 from test",
    ):
        assert line in output


def test_the_commands_of_the_banner_work(server: Server, tmp_path: Path) -> None:
    banner = server.output.partition("Neuroscope is ready.")[2].partition("Ctrl-C")[0]
    lines = banner.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith("curl -H"))
    script = tmp_path / "ask.sh"
    script.write_text("\n".join(lines[start : start + 2]))
    asked = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True, timeout=60)
    assert '"content":"Where is Paris?"' in asked.stdout
    python = banner.partition("From Python:")[2]
    snippet = "\n".join(line.removeprefix("  ") for line in python.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", snippet], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "Where is Paris?"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_closes_its_half_is_not_told_of_success(server: Server, stream: bool) -> None:
    content = "[delay=0.3] " + "w " * 50
    body = json.dumps({"messages": [{"role": "user", "content": content}], "stream": stream}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as half:
        half.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(0.5)
        half.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := half.recv(65536):
            answer += piece
            if answer.endswith((b"0\r\n\r\n", b"}")):
                break
    assert b'"code":"cancelled"' in answer
    assert b'"finish_reason":"stop"' not in answer
    assert stream or answer.startswith(b"HTTP/1.1 503")


def test_a_key_of_blanks_is_no_key(tmp_path: Path) -> None:
    status, output = refused_start(
        tmp_path, "-b", "0.0.0.0:0", "-b", "127.0.0.1:0", NEUROSCOPE_API_KEY="  \n"
    )
    assert status != 0
    assert "Set NEUROSCOPE_API_KEY" in output
