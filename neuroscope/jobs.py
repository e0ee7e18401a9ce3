"""How the pipeline's processes behave: one run per results folder, no job outlives its run, errors are told.

`begin` is for the run (the Snakefile calls it on start), `run` for a job (each script is one call of it). The
locks are the operating system's: they end with their process, however it ends, so none is ever stale. A run that is
to stop takes its token out of its lock, and its jobs leave. What a job does is the business of the function it is
given.
"""

from __future__ import annotations

import fcntl
import importlib
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
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from neuroscope.disk import disk_failure
from neuroscope.errors import ArtefactError, NeuroscopeError
from neuroscope.settings import Settings
from neuroscope.settings.commands import with_pairing

RUN_LOCK = ".run.lock"
"""Held by the run, exclusively; its text is the run's token."""
JOBS_LOCK = ".jobs.lock"
"""Shared by the jobs at work."""
FAILURE = ".failure"
"""Ending of the file beside a job's log that holds the message it failed with."""
RUN_TOKEN = "NEUROSCOPE_RUN_TOKEN"
"""Environment of a run's jobs: the run they belong to, so that one which starts late sees that it is gone."""
STARTED_BY = "NEUROSCOPE_STARTED_BY"
"""Environment of a run: the process that started it and without which it is not to go on."""
INTERRUPTED = 130
POLL_SECONDS = 0.25
INTERRUPT_GRACE_SECONDS = 2.0
"""After Ctrl-C a job has this long to leave by itself: native code does not see Python's signal."""
STOP_SECONDS = 5.0
"""A run that was asked to stop and has not by then is ended by the next request."""

_held: list[IO[str]] = []  # open for as long as this process lives


def begin(results: Path | str) -> None:
    """Makes this process the run of a results folder (`hold`), which Ctrl-C, SIGTERM and SIGHUP end with its jobs.

    Snakemake's own answer to SIGTERM is to wait for jobs, for hours or for ever.
    """
    os.environ[RUN_TOKEN] = hold(results)
    asked: list[float] = []

    def stop(signum: int, frame: object) -> None:
        if asked and time.monotonic() - asked[0] > STOP_SECONDS:
            os._exit(INTERRUPTED)
        if asked:  # a terminal and the command line may both tell us
            return
        asked.append(time.monotonic())
        os.ftruncate(_held[-1].fileno(), 0)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, stop)


def end_with_starter() -> None:
    """Ends this process when the command line that started it is gone, however it went; its jobs follow."""
    starter = os.environ.pop(STARTED_BY, "")
    if not starter.isdigit():
        return

    parent = os.getppid()  # the starter, or a wrapper of the interpreter between us

    def watch() -> None:
        with suppress(ProcessLookupError):
            while os.getppid() == parent:
                os.kill(int(starter), 0)
                time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-starter", daemon=True).start()


def hold(results: Path | str, *, patience_seconds: float = 10.0) -> str:
    """Makes this process the one run of a results folder, until it ends, and returns the run's token.

    Waits for jobs that a killed run left behind (they notice within a second), then removes their unfinished
    files. Raises ArtefactError when another run is at work here, or when the folder cannot be written.
    """
    folder = Path(results)
    try:
        return _hold(folder, patience_seconds)
    except OSError as error:
        raise disk_failure(error, folder) or ArtefactError(f"{folder} cannot be used: {error}.") from error


def _hold(folder: Path, patience_seconds: float) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / RUN_LOCK).open("a+")
    if not _lock(lock, fcntl.LOCK_EX, patience_seconds=1.0):  # a job that looks at it holds it for an instant
        lock.seek(0)
        other = lock.read().partition(" ")[0] or "unknown"
        lock.close()
        raise ArtefactError(f"Another run (process {other}) is writing {folder}. End it with: kill {other}")
    lock.seek(0)
    lock.truncate()
    token = f"{os.getpid()} {secrets.token_hex(8)}\n"
    lock.write(token)
    lock.flush()
    jobs = (folder / JOBS_LOCK).open("a+")
    if not _lock(jobs, fcntl.LOCK_EX, patience_seconds=patience_seconds):
        jobs.close()
        lock.close()
        raise ArtefactError(
            f"A job of an earlier run still writes {folder}. See it with: ps -ef | grep {folder}"
        )
    for unfinished in [*folder.rglob(".*.tmp")]:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)
    jobs.close()
    _held.append(lock)
    return token


def running(results: Path | str) -> str | None:
    """The process id of the run that is at work in a results folder; None when there is none, or nobody can say."""
    try:
        with (Path(results) / RUN_LOCK).open() as file:
            return None if _lock(file, fcntl.LOCK_SH) else file.read(64).partition(" ")[0] or "unknown"
    except OSError:
        return None


def run(job: str | Callable[..., object], settings: Settings, *, log: Path | str, **arguments: Any) -> None:
    """Calls `job(settings, **arguments)` as a job of the run that holds the results folder of `settings`.

    `job` is `module:function`, imported once the process can be stopped: libraries take seconds. Log records go to
    `log` and to stderr. An expected failure ends the process with its message and status 1, anything else keeps its
    traceback. The process ends by itself when the run does.
    """
    folder, told = settings.results, Path(log).with_suffix(FAILURE)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        _log_to(Path(log))
        _join(folder)
        told.unlink(missing_ok=True)
        work = _named(job)
        # Polars has SIGINT let a thread wait on; the main thread, waiting for another, would never hear of it.
        signal.siginterrupt(signal.SIGINT, True)
        work(settings, **arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        expected = error if isinstance(error, NeuroscopeError) else disk_failure(error, folder)
        if expected is None:
            raise
        message = with_pairing(str(expected), settings.pairing.name)
        logging.getLogger("neuroscope").error("%s", message)
        with suppress(OSError):  # a full disk takes no note; it has been said on stderr
            told.write_text(message, encoding="utf-8")
        sys.exit(1)


def tell_failures(results: Path | str) -> None:
    """Repeats what failed jobs said, as the last words of a run: Snakemake's own stand after the jobs'."""
    for told in sorted(Path(results).glob(f"logs/*{FAILURE}")):
        if message := told.read_text(encoding="utf-8"):
            print(f"\nneuroscope: {message}", file=sys.stderr)
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


def _named(job: str | Callable[..., object]) -> Callable[..., object]:
    if not isinstance(job, str):
        return job
    module, _, function = job.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), function)
    return found


def _join(folder: Path) -> None:
    """Takes a share of the jobs' lock until this process has ended, and ends it with its run."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = (folder / JOBS_LOCK).open("a+")
    fcntl.flock(jobs, fcntl.LOCK_SH)
    _held.append(jobs)
    _end_with(folder / RUN_LOCK)


def _end_with(run_lock: Path) -> None:
    """Starts a thread that ends this process when the run it belongs to no longer holds `run_lock`.

    Nothing is started when it belongs to none and none holds it: the script was started by hand.
    """
    token = os.environ.get(RUN_TOKEN) or _token(run_lock)
    if token is None:
        return
    if _token(run_lock) != token:
        sys.exit(INTERRUPTED)

    def watch() -> None:
        while (now := _token(run_lock)) == token:
            time.sleep(POLL_SECONDS)
        if now is not None:  # the run is there and wants to stop: work may be left tidily
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(INTERRUPT_GRACE_SECONDS)
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, name="end-with-run", daemon=True).start()


def _token(run_lock: Path) -> str | None:
    """The token of the run that holds the lock, None when nobody does."""
    try:
        with run_lock.open("r+") as file:
            return None if _lock(file, fcntl.LOCK_SH) else file.read()
    except FileNotFoundError:
        return None


def _interrupt(signum: int, frame: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough, and twice would cut the tidying short
    timer = threading.Timer(INTERRUPT_GRACE_SECONDS, os._exit, args=(INTERRUPTED,))
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
    logging.raiseExceptions = False  # a log that cannot be written stops no work
