"""How the pipeline's processes behave: one run per results folder, no job outlives its run, errors are told.

`hold` is for the run (the Snakefile calls it on start), `run` for a job (each script is one call of it). The
locks are the operating system's: they end with their process, however it ends, so none is ever stale. What a
job does is the business of the function it is given.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from neuroscope.errors import ArtefactError, NeuroscopeError
from neuroscope.settings import Settings

RUN_LOCK = ".run.lock"
"""Held by the run, exclusively; its text is the run's token."""
JOBS_LOCK = ".jobs.lock"
"""Shared by the jobs at work."""
FAILURE = ".failure"
"""Ending of the file beside a job's log that holds the message it failed with."""
POLL_SECONDS = 0.25
INTERRUPT_GRACE_SECONDS = 2.0
"""After Ctrl-C a job has this long to leave by itself: native code does not see Python's signal."""

_held: list[IO[str]] = []  # open for as long as this process lives


def hold(results: Path | str, *, patience_seconds: float = 10.0) -> None:
    """Makes this process the one run of a results folder, until it ends.

    Waits for jobs that a killed run left behind (they notice within a second), then removes their unfinished
    files. Raises ArtefactError when another run is at work here.
    """
    folder = Path(results)
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / RUN_LOCK).open("a+")
    if not _lock(lock, fcntl.LOCK_EX, patience_seconds=1.0):  # a job that looks at it holds it for an instant
        lock.seek(0)
        other = lock.read().partition(" ")[0] or "unknown"
        lock.close()
        raise ArtefactError(
            f"Another run (process {other}) is writing {folder}. Wait for it, or end it with: kill {other}"
        )
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()} {secrets.token_hex(8)}\n")
    lock.flush()
    jobs = (folder / JOBS_LOCK).open("a+")
    if not _lock(jobs, fcntl.LOCK_EX, patience_seconds=patience_seconds):
        jobs.close()
        lock.close()
        raise ArtefactError(
            f"A job of an earlier run still writes {folder}. Look for it with: ps -ef | grep {folder}"
        )
    for unfinished in [*folder.rglob(".*.tmp")]:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)
    jobs.close()
    _held.append(lock)


def run(job: Callable[..., object], settings: Settings, *, log: Path | str, **arguments: Any) -> None:
    """Calls `job(settings, **arguments)` as a job of the run that holds the results folder of `settings`.

    Log records go to `log` and to stderr. An expected failure ends the process with its message and status 1,
    anything else keeps its traceback. The process ends by itself when the run does.
    """
    _log_to(Path(log))
    folder = settings.results
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / JOBS_LOCK).open("a+") as jobs:
        fcntl.flock(jobs, fcntl.LOCK_SH)
        _end_with(folder / RUN_LOCK)
        signal.signal(signal.SIGINT, _interrupt)
        told = Path(log).with_suffix(FAILURE)
        told.unlink(missing_ok=True)
        try:
            job(settings, **arguments)
        except NeuroscopeError as error:
            logging.getLogger("neuroscope").error("%s", error)
            told.write_text(str(error), encoding="utf-8")
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)


def tell_failures(results: Path | str) -> None:
    """Repeats what failed jobs said, as the last words of a run: Snakemake's own stand after the jobs'."""
    for told in sorted(Path(results).glob(f"logs/*{FAILURE}")):
        print(f"\nneuroscope: {told.read_text(encoding='utf-8')}", file=sys.stderr)
        told.unlink()


def quote_interpreter() -> None:
    """Snakemake puts `sys.executable` into shell commands as it is; a checkout may lie in a path with spaces."""
    if Path(sys.executable).exists():
        sys.executable = shlex.quote(sys.executable)


def _lock(file: IO[str], mode: int, *, patience_seconds: float = 0.0) -> bool:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS / 5)
        else:
            return True


def _end_with(run_lock: Path) -> None:
    """Starts a thread that ends this process when the run that holds `run_lock` now no longer does.

    Nothing is started when no run holds it: the script was started by hand.
    """
    token = _token(run_lock)
    if token is None:
        return

    def watch() -> None:
        while _token(run_lock) == token:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-run", daemon=True).start()


def _token(run_lock: Path) -> str | None:
    """The token of the run that holds the lock, None when nobody does."""
    try:
        with run_lock.open("r+") as file:
            return None if _lock(file, fcntl.LOCK_SH) else file.read()
    except FileNotFoundError:
        return None


def _interrupt(signum: int, frame: object) -> None:
    timer = threading.Timer(INTERRUPT_GRACE_SECONDS, os._exit, args=(130,))
    timer.daemon = True
    timer.start()
    raise KeyboardInterrupt


def _log_to(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    terminal, file = logging.StreamHandler(), logging.FileHandler(log, mode="w", encoding="utf-8")
    terminal.setFormatter(logging.Formatter("%(message)s"))
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    file.setLevel(logging.INFO)
    logging.basicConfig(level=logging.WARNING, handlers=[terminal, file], force=True)
    logging.getLogger("neuroscope").setLevel(logging.INFO)
    logging.captureWarnings(True)
