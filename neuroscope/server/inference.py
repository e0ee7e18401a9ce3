"""The one native thread that runs the model, and the queue before it.

Greenlets hand in jobs; a job's results come back through a deque and one wake-up of the hub per result, which
is the only thing a native thread may do to gevent's world. What a job computes is said where it is made
(`generation.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import gevent
from gevent.event import AsyncResult, Event
from gevent.threadpool import ThreadPool

from neuroscope.server.problems import Problem

log = logging.getLogger(__name__)

RETRY_AFTER_S = 5

P = ParamSpec("P")
T = TypeVar("T")


class Job(Protocol):
    """Work for the model. `results` runs in the native thread, the rest in the hub: no blocking there."""

    cancelled: bool

    def results(self) -> Iterator[Any]:
        """The work. Looks at `cancelled` between results."""

    def receive(self, result: Any) -> None:
        """One result, in order."""

    def finish(self, error: BaseException | None) -> None:
        """Called exactly once, also for a job that never ran."""


class Once(Generic[T]):
    """A job with a single result. `compute` is given a function that says whether to stop."""

    def __init__(self, compute: Callable[[Callable[[], bool]], T], release: Callable[[], None]) -> None:
        self.cancelled = False
        self._compute = compute
        self._release = release
        self._result: AsyncResult[T] = AsyncResult()

    def results(self) -> Iterator[T]:
        yield self._compute(lambda: self.cancelled)

    def receive(self, result: T) -> None:
        if not self.cancelled:  # what was stopped half-way must not pass for the whole
            self._result.set(result)

    def finish(self, error: BaseException | None) -> None:
        self._release()
        if not self._result.ready():
            self._result.set_exception(error or Problem(503, "The request was given up.", code="cancelled"))

    def wait(self) -> T:
        """The result. Raises what `compute` raises, and Problem 503 when it was cancelled."""
        return self._result.get()  # type: ignore[no-any-return]


class NativeThread:
    """Runs blocking functions away from the hub, one at a time, in the order asked for."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(...)`, while other greenlets go on. What it raises is raised here."""
        value, error = self._pool.apply(_capture, (function, args, kwargs))
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]


class Inference:
    """First come, first served: one job runs, `waiting_places` more may wait. Used in the hub only."""

    def __init__(self, thread: NativeThread, waiting_places: int) -> None:
        self._thread = thread
        self._free_places = waiting_places + 1
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._abandoned: Job | None = None
        self._arrived: deque[tuple[Job, Any]] = deque()  # written by the native thread, read in the hub
        self._work_to_do = Event()
        self._idle = Event()
        self._idle.set()
        self._alarm = gevent.get_hub().loop.async_()
        self._alarm.start(self._deliver)
        self._dispatcher = gevent.spawn(self._dispatch)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return self._running is not None

    def take_place(self) -> Callable[[], None]:
        """A place in the queue, taken before the prompt is made. Returns the function that gives it back.

        Raises Problem 429 when the queue is full.
        """
        if self._free_places == 0:
            raise Problem(
                429,
                "The model is busy and its queue is full. Try again in a moment.",
                code="queue_full",
                retry_after_s=RETRY_AFTER_S,
            )
        self._free_places -= 1
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._free_places += 1

        return give_back

    def submit(self, job: Job) -> None:
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
        for job in [*self._waiting, *([self._running] if self._running else [])]:
            self.cancel(job)

    def abandon(self) -> None:
        """End the running job for whoever waits for it while the thread is still at it: the process is leaving."""
        job = self._running
        if job is not None and job is not self._abandoned:
            self._abandoned = job
            self._end(job, None)

    def wait_idle(self, timeout_s: float) -> bool:
        return bool(self._idle.wait(timeout_s))

    def _dispatch(self) -> None:
        while True:
            while self._waiting:
                self._running = self._waiting.popleft()
                error = self._thread.call(self._work, self._running)
                self._deliver()
                if self._running is not self._abandoned:
                    self._end(self._running, error)
                self._running = None
            self._idle.set()
            self._work_to_do.clear()
            self._work_to_do.wait()

    def _work(self, job: Job) -> BaseException | None:  # in the native thread
        try:
            for result in job.results():
                self._arrived.append((job, result))
                self._alarm.send()
        except BaseException as error:  # the border of a request: the next one must find a working thread
            return error
        return None

    def _deliver(self) -> None:  # in the hub
        while self._arrived:
            job, result = self._arrived.popleft()
            if job is self._abandoned:
                continue
            try:
                job.receive(result)
            except Exception:  # the border of a request: later jobs' results must still be delivered
                log.exception("a result could not be delivered")
                job.cancelled = True

    def _end(self, job: Job, error: BaseException | None) -> None:
        try:
            job.finish(error)
        except Exception:  # the border of a request: the next job must run
            log.exception("a job could not be ended")


def _capture(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """The pool would print an exception that its caller is about to deal with."""
    try:
        return function(*args, **kwargs), None
    except BaseException as error:  # raised again where `call` waits
        return None, error
