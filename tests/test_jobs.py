"""Runs and their jobs: one run a folder, no job without its run, failures told in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscope.errors import ArtefactError
from neuroscope.jobs import hold, tell_failures

HOLD = """
import sys, time
from neuroscope.jobs import hold
hold(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""
JOB = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from neuroscope.errors import CorpusError
from neuroscope.jobs import run

def work(settings, *, kind):
    (settings.results / ".half.txt.1-2.tmp").write_text("half")
    print("working", flush=True)
    if kind == "fail":
        raise CorpusError("The corpus is empty. Add a source.")
    if kind == "bug":
        raise ZeroDivisionError("by zero")
    if kind == "deaf":
        while True:  # native code does not come back for a signal
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass
    time.sleep(60)

results = Path(sys.argv[1])
run(work, SimpleNamespace(results=results), log=results / "logs" / "work.log", kind=sys.argv[2])
"""


class Processes:
    """Starts Python scripts and ends those that are left."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, script: str, *words: str | Path, until: str) -> subprocess.Popen[str]:
        """Returns once the script has said `until`."""
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{until}\n", process.communicate(timeout=10)[1]
        return process

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.end()


def test_a_second_run_is_refused_by_the_process_that_holds_the_folder(
    processes: Processes, tmp_path: Path
) -> None:
    first = processes.start(HOLD, tmp_path, until="held")
    with pytest.raises(ArtefactError, match=rf"process {first.pid}\) is writing .*kill {first.pid}"):
        hold(tmp_path)


def test_a_killed_run_leaves_no_lock(processes: Processes, tmp_path: Path) -> None:
    first = processes.start(HOLD, tmp_path, until="held")
    first.kill()
    first.wait()
    processes.start(HOLD, tmp_path, until="held")


def test_a_job_ends_with_its_run_and_the_next_run_clears_up(processes: Processes, tmp_path: Path) -> None:
    scheduler = processes.start(HOLD, tmp_path, until="held")
    job = processes.start(JOB, tmp_path, "sleep", until="working")
    scheduler.kill()
    scheduler.wait()
    processes.start(HOLD, tmp_path, until="held")
    assert job.poll() is not None, "the next run waits for the job of the last"
    assert not (tmp_path / ".half.txt.1-2.tmp").exists()


def test_a_job_by_hand_needs_no_run(processes: Processes, tmp_path: Path) -> None:
    job = processes.start(JOB, tmp_path, "sleep", until="working")
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(timeout=1)


def test_an_expected_failure_is_one_message_and_status_1(
    processes: Processes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = processes.start(JOB, tmp_path, "fail", until="working")
    _, said = job.communicate(timeout=20)
    assert job.returncode == 1
    assert said == "The corpus is empty. Add a source.\n"
    assert "ERROR neuroscope: The corpus is empty." in (tmp_path / "logs/work.log").read_text()
    tell_failures(tmp_path)
    assert capsys.readouterr().err == "\nneuroscope: The corpus is empty. Add a source.\n"
    tell_failures(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_bug_keeps_its_traceback(processes: Processes, tmp_path: Path) -> None:
    job = processes.start(JOB, tmp_path, "bug", until="working")
    _, said = job.communicate(timeout=20)
    assert job.returncode == 1
    assert "ZeroDivisionError: by zero" in said
    assert "Traceback" in said


@pytest.mark.parametrize("kind", ["sleep", "deaf"])
def test_ctrl_c_ends_a_job_within_five_seconds(kind: str, processes: Processes, tmp_path: Path) -> None:
    job = processes.start(JOB, tmp_path, kind, until="working")
    os.kill(job.pid, signal.SIGINT)
    started = time.monotonic()
    assert job.wait(timeout=20) == 130
    assert time.monotonic() - started < 15  # seconds; a busy machine takes longer than the promised five
