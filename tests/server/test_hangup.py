"""SIGHUP: the results are read anew and nothing is restarted; but a server whose terminal is closed ends."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from scripted_results import label_of, write_results
from serving import ROOT, EventStream, Server, free_ports, serving, wait_until, write_config

pytestmark = pytest.mark.usefixtures("hangups")

NEVER = {"results_poll_s": 0}
WITH_RESULTS = {"SCRIPTED_RESULTS": "1"}


def shown(server: Server, feature: int = 10) -> str:
    label: str = server.get(f"/v1/features/{feature}").json()["label"]
    return label


def test_a_hangup_reads_the_results_and_cuts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "results/tiny"
    write_results(folder)
    with serving(tmp_path, env=WITH_RESULTS, serve=NEVER) as server:
        workers = psutil.Process(server.process.pid).children()
        with EventStream(server.features_port) as stream:
            next(stream.blocks())
            write_results(folder, "another name of")
            assert shown(server) == label_of(10)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: shown(server) == "another name of 10", what="the new label")
            server.chat("a")
            events = stream.until("generation_complete")
            assert events[0].data["top_features"][0]["label"] == "another name of 3"
        assert psutil.Process(server.process.pid).children() == workers


def test_a_hangup_while_it_starts_harms_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, env={"SCRIPTED_LOAD_SECONDS": "3"}, serve=NEVER, ready=False) as server:
        wait_until(server.answers, what="a port")
        workers = wait_until(lambda: psutil.Process(server.process.pid).children(), what="a worker")

        def is_ready_after_another() -> bool:
            for process in (server.process, *workers):
                process.send_signal(signal.SIGHUP)
            return "Neuroscope is ready." in server.output

        wait_until(is_ready_after_another, what="readiness")
        assert psutil.Process(server.process.pid).children() == workers
        assert server.chat("a").status_code == 200


@dataclass
class OnTerminal:
    """A server and the terminal it was started from."""

    server: Server
    ours: int
    """Our end of the terminal."""

    def close_terminal(self) -> None:
        os.close(self.ours)
        self.ours = -1

    def master(self) -> psutil.Process:
        """gunicorn's, which may be a shell's child."""
        leader = psutil.Process(self.server.process.pid)
        return leader if "gunicorn" in leader.cmdline() else leader.children()[0]


@contextmanager
def on_terminal(folder: Path, script: str) -> Iterator[OnTerminal]:
    """`sh -c script` as the leader of a session with a terminal; `$SERVER` in it starts the server."""
    write_results(folder / "results/tiny")
    port, features_port = free_ports()
    config = write_config(folder, serve={"port": port, "features_port": features_port, **NEVER})
    log = folder / "log"
    command = shlex.join(
        [sys.executable, "-m", "gunicorn", "-c", str(ROOT / "gunicorn.conf.py"), "scripted_wsgi"]
    )
    environment = {
        **os.environ,
        **WITH_RESULTS,
        "NEUROSCOPE_CONFIG": str(config),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT)]),
        "LOG": str(log),
    }
    ours, theirs = pty.openpty()
    log.touch()
    process = subprocess.Popen(
        ["bash", "-c", script.replace("$SERVER", command)],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread yet
    )
    os.close(theirs)
    running = OnTerminal(Server(process, port, features_port, log), ours)
    family = []
    try:
        wait_until(running.server.answers, what="a port")
        running.server.wait_ready()
        family = [running.master(), *running.master().children()]
        yield running
    finally:
        if running.ours >= 0:
            os.close(running.ours)
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        psutil.wait_procs(family, timeout=30)
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "script",
    ["exec $SERVER > $LOG 2>&1", "set -m; $SERVER > $LOG 2>&1 & wait"],
    ids=["by itself", "in a shell's background"],
)
def test_a_closed_terminal_ends_the_server(tmp_path: Path, script: str) -> None:
    with on_terminal(tmp_path, script) as running:
        family = [running.master(), *running.master().children()]
        family[0].send_signal(signal.SIGHUP)  # while the terminal is there it is the other question
        wait_until(lambda: "Handling signal: hup" in running.server.output, what="the signal")
        assert shown(running.server) == label_of(10)
        running.close_terminal()
        if "set -m" in script:
            family[0].send_signal(signal.SIGHUP)  # as interactive shells do to their jobs
        assert not psutil.wait_procs(family, timeout=30)[1]
        assert "Traceback" not in running.server.output
        assert not running.server.answers()


def test_what_is_printed_to_a_closed_terminal_keeps_nobody(tmp_path: Path) -> None:
    with on_terminal(tmp_path, "exec $SERVER 2>&1 | tee $LOG") as running:
        family = [running.master(), *running.master().children()]
        running.close_terminal()
        family[0].send_signal(signal.SIGHUP)
        assert not psutil.wait_procs(family, timeout=30)[1]


def test_under_nohup_it_outlives_its_terminal(tmp_path: Path) -> None:
    with on_terminal(tmp_path, "nohup $SERVER > $LOG 2>&1; true") as running:
        master = running.master()
        running.close_terminal()
        running.server.process.wait(30)  # the shell
        write_results(tmp_path / "results/tiny", "another name of")
        master.send_signal(signal.SIGHUP)
        wait_until(lambda: shown(running.server) == "another name of 10", what="the new label")
        master.terminate()
        assert not psutil.wait_procs([master], timeout=30)[1]
        assert not running.server.answers()
