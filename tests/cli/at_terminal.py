"""`neuroscope` beside a running server: in this process, in one of its own with pipes, or at a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self
from unittest.mock import patch

from serving import ROOT, Server

from neuroscope.cli import main

SCRIPT = "import sys; from neuroscope.cli import main; sys.exit(main())"


def environment(server: Server, **more: str) -> dict[str, str]:
    """What points the command at `server`, and nothing else that could."""
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NEUROSCOPE_") and name not in ("NO_COLOR", "TERM", "COLUMNS")
    }
    config = server.log.parent / "config/config.yaml"
    return {**base, "NEUROSCOPE_CONFIG": str(config), "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *words]


def run(server: Server, *words: str, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, in this process: starting another takes longer than most questions."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
    streams["stdin"] = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, environment(server, **more), clear=True))
        for name, stream in streams.items():
            stack.enter_context(patch.object(sys, name, stream))
        code = main(words)
    written = {}
    for name in ("stdout", "stderr"):
        streams[name].flush()
        written[name] = streams[name].buffer.getvalue().decode()  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(list(words), code, written["stdout"], written["stderr"])


def lines_of(server: Server, *words: str, columns: int = 80) -> list[str]:
    """What it prints with success."""
    done = run(server, *words, COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def start(server: Server, *words: str, **more: str) -> subprocess.Popen[str]:
    """Starts it with pipes, which are read as text, line by line."""
    return subprocess.Popen(
        command(*words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(server, **more),
    )


class Typist:
    """A person at a terminal of `columns`, which is the command's stdin, stdout and stderr.

    The command is pointed at `server`, or given the environment as it is.
    """

    def __init__(self, server: Server | None, *words: str, columns: int = 80, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            command(*words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(server, **more) if server else {**os.environ, "PYTHONPATH": str(ROOT), **more},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread yet
        )
        os.close(theirs)
        self.seen = ""
        self._read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def types(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def sees(self, words: str, seconds: float = 30.0) -> str:
        """Waits for words after those that were waited for before; returns what came until them."""
        until = time.monotonic() + seconds
        while (place := self.seen.find(words, self._read)) < 0:
            left = until - time.monotonic()
            assert left > 0, f"{words!r} did not come: {self.seen[self._read :]!r}"
            if select.select([self._ours], [], [], left)[0] and not self._more():
                raise AssertionError(f"it ended before {words!r}: {self.seen[self._read :]!r}")
        came, self._read = self.seen[self._read : place], place + len(words)
        return came

    def leaves(self, seconds: float = 30.0) -> int:
        """Waits for its end, and returns its exit code."""
        until = time.monotonic() + seconds
        while select.select([self._ours], [], [], max(0.0, until - time.monotonic()))[0]:
            if not self._more():
                return self._process.wait(seconds)
        raise AssertionError(f"it has not ended: {self.seen[self._read :]!r}")

    def _more(self) -> bool:
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # Linux says so that the other end is closed
            return False
        self.seen += part.decode(errors="replace")
        return bool(part)
