"""gunicorn's master: ports that are taken, signals that would start a second model, and pauses."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from serving import Server, free_ports, http, launch, serving, wait_until, write_config

from neuroscope.server import master


def refused(folder: Path, chat: int, features: int, **serve: object) -> str:
    """The output of a start that must fail at once."""
    config = write_config(folder, serve={"port": chat, "features_port": features, **serve})
    process = launch(config, "scripted_wsgi", folder / "log")
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
    return (folder / "log").read_text()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_named_with_its_setting(tmp_path: Path, host: str) -> None:
    chat, features = free_ports()
    with socket.create_server((host, features)):
        output = refused(tmp_path, chat, features)
    assert f"Port {features} on 127.0.0.1 cannot be opened: Address already in use." in output
    assert "Set serve.features_port in config/config.yaml to another." in output
    assert "Traceback" not in output
    assert "Booting worker" not in output


@pytest.mark.parametrize("host", ["192.0.2.1", "999.1.1.1"])
def test_an_address_that_is_not_this_machines_is_named(tmp_path: Path, host: str) -> None:
    output = refused(tmp_path, *free_ports(), host=host)
    assert f"{host} cannot be opened: " in output
    assert "Set serve.host in config/config.yaml to another." in output


def test_a_server_started_twice_leaves_the_first_alone(server: Server, tmp_path: Path) -> None:
    output = refused(tmp_path, server.port, server.features_port)
    assert f"Port {server.port} on 127.0.0.1 cannot be opened" in output
    assert "Set serve.port in config/config.yaml to another." in output
    assert server.chat("still here").status_code == 200


def test_a_port_that_was_just_given_up_can_be_had_at_once(tmp_path: Path) -> None:
    """Its connections are in TIME_WAIT, and a killed server's worker may hold it for a moment."""
    port, features_port = free_ports()
    serve = {"port": port, "features_port": features_port}
    for number, sign in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)):
        folder = tmp_path / str(number)
        with serving(folder, serve=serve) as server:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while connection.recv(65536):
                    pass
            server.stop(sign)


def test_no_signal_starts_a_second_model(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        process = psutil.Process(server.process.pid)
        before = process.children(recursive=True)
        for name in ("TTIN", "TTOU", "USR2", "USR1", "WINCH"):
            server.process.send_signal(getattr(signal, f"SIG{name}"))
            wait_until(lambda name=name: f"Handling signal: {name.lower()}" in server.output)
        for name in ("TTIN", "TTOU", "USR2"):
            wait_until(lambda name=name: f"SIG{name} is not obeyed: " in server.output)
        assert process.children(recursive=True) == before
        assert server.chat("still here").status_code == 200
        assert server.stop() == 0


def test_a_second_interrupt_does_not_make_the_end_a_failure(tmp_path: Path) -> None:
    """Whenever it comes: again and again until the process has gone."""
    with serving(tmp_path) as server:
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.001)
        assert server.process.returncode == 0
        assert "Traceback" not in server.output


def test_an_ended_worker_is_replaced_and_the_server_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        process = psutil.Process(server.process.pid)
        (first,) = process.children()
        first.kill()
        first.wait(60)
        wait_until(lambda: server.output.count("Neuroscope is ready.") == 2)
        assert http.get(f"{server.chat_url}/readyz").json()["status"] == "ready"
        assert len(process.children()) == 1


def test_a_worker_is_not_killed_for_a_pause_of_the_whole_server(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], []
    monkeypatch.setattr(master.time, "monotonic", lambda: now[0])
    arbiter = SimpleNamespace(timeout=20, murder_workers=lambda: looks.append(now[0]))
    master.forgive_pauses(arbiter)  # type: ignore[arg-type]
    for moment in (101, 102, *range(500, 523)):  # stopped from 102 to 500, then a look every second
        now[0] = moment
        arbiter.murder_workers()
    assert looks == [101, 102, 520, 521, 522]
