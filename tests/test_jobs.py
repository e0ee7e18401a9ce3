"""Runs and their jobs: one run a folder, no job without its run, failures told in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from neuroscope.errors import ArtefactError
from neuroscope.jobs import RUN_TOKEN, hold, tell_failures

HOLD = """
import sys, time
from neuroscope.jobs import hold
hold(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""
RUN = """
import os, subprocess, sys, time
from neuroscope.jobs import begin, end_with_starter
end_with_starter()
begin(sys.argv[1])
job = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1], sys.argv[3]], stdout=subprocess.PIPE, text=True)
assert job.stdout.readline() == "working\\n"
try:
    print(job.pid, flush=True)
    job.wait()
except KeyboardInterrupt:
    job.wait()
    sys.exit(1)
"""
STARTER = """
import os, subprocess, sys, time
from neuroscope.jobs import STARTED_BY
subprocess.run([sys.executable, "-c", *sys.argv[1:]], env={**os.environ, STARTED_BY: str(os.getpid())})
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
    if kind == "full":
        raise OSError(28, "No space left on device", str(settings.results / "stats.parquet"))
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
pairing = SimpleNamespace(name="mine")
run(work, SimpleNamespace(results=results, pairing=pairing), log=results / "logs" / "work.log", kind=sys.argv[2])
"""
WAITING = """
import threading
import polars

def work(settings):
    try:
        print("working", flush=True)
        lock = threading.Lock()  # every wait for a thread or a future is one for a lock
        lock.acquire()
        lock.acquire()
    finally:
        print("left tidily", flush=True)
"""


class Processes:
    """Starts Python scripts and ends those that are left."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, script: str, *words: str | Path, until: str | None = None) -> subprocess.Popen[str]:
        """Returns once the script has said `until`."""
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        if until is not None:
            said = self.line(process)
            assert said == f"{until}\n", process.communicate(timeout=10)[1]
        return process

    def line(self, process: subprocess.Popen[str]) -> str:
        """What it says next; empty when it has ended."""
        assert process.stdout is not None
        return process.stdout.readline()

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


def gone(pid: int, seconds: float = 15) -> bool:
    """Whether a process leaves in time; one that nobody has waited for counts as gone."""
    deadline = time.monotonic() + seconds
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["sleep", "deaf"])
def test_a_run_that_is_asked_to_stop_stops_with_its_job(
    number: signal.Signals, kind: str, processes: Processes, tmp_path: Path
) -> None:
    """The signal reaches the run alone, as `kill` sends it."""
    run = processes.start(RUN, tmp_path, JOB, kind)
    job = int(processes.line(run))
    run.send_signal(number)
    run.send_signal(number)  # a terminal and the command line may both ask
    assert run.wait(timeout=15) == 1
    assert gone(job, seconds=0)


def test_a_run_ends_with_the_command_that_started_it(processes: Processes, tmp_path: Path) -> None:
    starter = processes.start(STARTER, RUN, tmp_path, JOB, "deaf")
    job = int(processes.line(starter))
    (run,) = psutil.Process(starter.pid).children()
    starter.kill()
    assert gone(run.pid)
    assert gone(job)


def test_a_job_that_starts_after_its_run_has_gone_does_nothing(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_TOKEN, "1 of a run before")
    job = processes.start(JOB, tmp_path, "sleep")
    assert processes.line(job) == ""
    assert job.wait(timeout=15) == 130


def test_a_full_disk_is_a_message_and_no_traceback(processes: Processes, tmp_path: Path) -> None:
    _, said = processes.start(JOB, tmp_path, "full", until="working").communicate(timeout=20)
    assert said.startswith(f"The disk is full: {tmp_path}/stats.parquet could not be written")
    assert f"free in {tmp_path}. Free some space, then run the same command again" in said
    assert "Traceback" not in said


def test_a_folder_that_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match=r"cannot be used: .*Not a directory"):
        hold(tmp_path / "file/results")


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


def test_ctrl_c_is_heard_by_a_job_that_waits_for_another_thread(processes: Processes, tmp_path: Path) -> None:
    """Though it has imported Polars, whose own answer to Ctrl-C has such a wait go on."""
    (tmp_path / "waiting.py").write_text(WAITING)
    script = JOB.replace("run(work,", f"sys.path.insert(0, {str(tmp_path)!r})\nrun('waiting:work',").replace(
        ", kind=sys.argv[2]", ""
    )
    job = processes.start(script, tmp_path, until="working")
    os.kill(job.pid, signal.SIGINT)
    assert processes.line(job) == "left tidily\n"
    assert job.wait(timeout=20) == 130
