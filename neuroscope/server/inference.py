"""The one native thread that runs the model, and the queue before it.

Greenlets hand in jobs; a job's results come back through a deque and one wake-up of the hub per result, which
is the only thing a native thread may do to gevent's world. What a job computes is said where it is made
(`generation.py`); what is done about a thread that hangs is said in `watchdog.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import gevent
from gevent.event import Event
from gevent.threadpool import ThreadPool

from neuroscope.errors import NeuroscopeError
from neuroscope.server.jobs import Job
from neuroscope.server.problems import RETRY_AFTER_S, Problem

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class NativeThread:
    """Runs blocking functions away from the hub, one at a time, in the order asked for."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)

    def leave(self) -> None:
        """For a thread that is called no more: it ends when its last call returns, which may be never."""
        gevent.spawn(self._pool.kill)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(...)`, while other greenlets go on. What it raises is raised here."""
        value, error = self._pool.apply(_capture, (function, args, kwargs))
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]


@dataclass(eq=False)
class _Run:
    """One job in the thread."""

    job: Job
    arrived: deque[Any] = field(default_factory=deque)
    """Results, written by the native thread and read in the hub."""
    results: int = 0
    is_left: bool = False
    """Nobody waits for it any more: what it still says is dropped."""


class Inference:
    """First come, first served: one job runs, `waiting_places` more may wait. Used in the hub only."""

    def __init__(self, thread: NativeThread, waiting_places: int) -> None:
        self.failures = 0
        """Jobs that failed unexpectedly since one went well."""
        self._free_places = waiting_places + 1
        self._waiting: deque[Job] = deque()
        self._running: _Run | None = None
        self._runs = 0
        self._work_to_do = Event()
        self._idle = Event()
        self._alarm = gevent.get_hub().loop.async_()
        self._alarm.start(self._deliver)
        self._use(thread)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def pulse(self) -> tuple[int, int] | None:
        """Changes with every sign of life of the running job; None when nothing runs."""
        run = self._running
        return None if run is None or run.is_left else (self._runs, run.job.signs)

    @property
    def is_full(self) -> bool:
        return self._free_places == 0

    def take_place(self) -> Callable[[], None]:
        """A place in the queue, taken before the prompt is made. Returns the function that gives it back.

        Raises Problem 429 when the queue is full.
        """
        if self.is_full:
            raise queue_full()
        self._free_places -= 1
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._free_places += 1

        return give_back

    def submit(self, job: Job, *, first: bool = False) -> None:
        """Queue `job`; with `first`, before all that wait."""
        if first:
            self._waiting.appendleft(job)
        else:
            self._waiting.append(job)
        self._idle.clear()
        self._work_to_do.set()

    def cancel(self, job: Job) -> None:
        """A waiting job leaves the queue at once; a running one ends at its next token."""
        job.cancelled = True
        if job in self._waiting:
            self._waiting.remove(job)
            job.finish(None)

    def cancel_all(self) -> None:
        for job in [*self._waiting, *([self._running.job] if self._running else [])]:
            self.cancel(job)

    def abandon(self, error: BaseException | None = None) -> None:
        """End the running job for whoever waits for it while the thread may be at it for ever."""
        run = self._running
        if run is not None and not run.is_left:
            run.is_left = run.job.cancelled = True
            self._end(run.job, error)

    def replace_thread(
        self, thread: NativeThread, *, running: BaseException, waiting: Callable[[], BaseException]
    ) -> None:
        """Go on with `thread`. The running job and those that wait end with these errors; none is run again."""
        self.abandon(running)
        given_up, self._waiting = self._waiting, deque()
        for job in given_up:
            job.cancelled = True
            self._end(job, waiting())
        self._dispatcher.kill(block=False)
        self._thread.leave()
        self._running = None
        self.failures = 0
        self._use(thread)

    def wait_idle(self, timeout_s: float) -> bool:
        return bool(self._idle.wait(timeout_s))

    def _use(self, thread: NativeThread) -> None:
        self._thread = thread
        self._idle.set()
        self._dispatcher = gevent.spawn(self._dispatch, thread)

    def _dispatch(self, thread: NativeThread) -> None:
        while self._thread is thread:
            if self._waiting:
                self._run_next(thread)
            else:
                self._idle.set()
                self._work_to_do.clear()
                self._work_to_do.wait()

    def _run_next(self, thread: NativeThread) -> None:
        run = self._running = _Run(self._waiting.popleft())
        self._runs += 1
        error: BaseException | None
        try:
            error = thread.call(self._work, run)
        except Exception as unexpected:  # no thread could be had: the job fails, and the next one tries again
            error = unexpected
        if self._thread is not thread:
            return
        self._deliver()
        if not run.is_left:
            self._count(run, error)
            self._end(run.job, error)
        self._running = None

    def _work(self, run: _Run) -> BaseException | None:  # in the native thread
        try:
            for result in run.job.results():
                if run.is_left:
                    break
                run.arrived.append(result)
                run.results += 1
                self._alarm.send()
        except BaseException as error:  # the border of a request: the next one must find a working thread
            return error
        return None

    def _deliver(self) -> None:  # in the hub
        run = self._running
        while run is not None and run.arrived and not run.is_left:
            result = run.arrived.popleft()
            try:
                run.job.receive(result)
            except Exception:  # the border of a request: later jobs' results must still be delivered
                log.exception("a result could not be delivered")
                run.job.cancelled = True

    def _count(self, run: _Run, error: BaseException | None) -> None:
        """What was refused in words, or given up before its first result, says nothing about the engine."""
        if error is not None and not isinstance(error, (NeuroscopeError, Problem)):
            self.failures += 1
        elif error is None and run.results:
            self.failures = 0

    def _end(self, job: Job, error: BaseException | None) -> None:
        try:
            job.finish(error)
        except Exception:  # the border of a request: the next job must run
            log.exception("a job could not be ended")


def queue_full() -> Problem:
    message = "The model is busy and its queue is full. Try again in a moment."
    return Problem(429, message, code="queue_full", retry_after_s=RETRY_AFTER_S)


def _capture(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """The pool would print an exception that its caller is about to deal with."""
    try:
        return function(*args, **kwargs), None
    except BaseException as error:  # raised again where `call` waits
        return None, error
