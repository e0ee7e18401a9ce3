"""SIGHUP means two things: read the results anew, or the terminal was closed. gunicorn would load the model again.

gunicorn's master is told here which of the two it is. No gevent: `gunicorn.conf.py` imports this before the fork.
"""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Any

TERMINAL = "/dev/tty"
RECENTLY_S = 5.0
"""A terminal that went longer ago sent no signal: the server outlived it, and is asked by hand now."""
PATIENCE_S = 0.5
"""Shells send the signal first and let go of the terminal after it."""
LOOK_SECONDS = 0.05


class Terminal:
    """The terminal that this process was started from, if any."""

    def __init__(self) -> None:
        self._seen = -math.inf
        self.look()

    def look(self) -> bool:
        """Whether it is there."""
        try:
            os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return False
        self._seen = time.monotonic()
        return True

    def is_closing(self) -> bool:
        """Whether it goes within a moment, or went a moment ago."""
        started = time.monotonic()
        if started - self._seen > RECENTLY_S:
            return False
        while self.look():
            if time.monotonic() - started > PATIENCE_S:
                return False
            time.sleep(LOOK_SECONDS)
        return True


def pass_on_hangups(arbiter: Any) -> None:
    """Have gunicorn's master hand SIGHUP to its worker, or end where its terminal was closed.

    A server under nohup was started with the signal ignored, and outlives its terminal.
    """
    outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    terminal = Terminal()

    def handle_hup() -> None:
        if not outlives and terminal.is_closing():
            raise StopIteration  # gunicorn's own way to end after SIGTERM
        arbiter.kill_workers(signal.SIGHUP)

    every_second = arbiter.murder_workers

    def murder_workers() -> None:
        terminal.look()
        every_second()

    arbiter.handle_hup = handle_hup
    arbiter.murder_workers = murder_workers


def ignore_hangups(worker: Any) -> None:
    """Until the worker has a handler of its own, which gunicorn would undo: the default action ends the process."""
    worker.SIGNALS = [number for number in worker.SIGNALS if number != signal.SIGHUP]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
