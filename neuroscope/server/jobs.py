"""Work for the model's thread: what `inference.py` runs, and the kind that has a single result.

The kind that writes an answer is in `generation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from gevent.event import AsyncResult

from neuroscope.server.problems import Problem

T = TypeVar("T")


class Job(Protocol):
    """Work for the model. `results` runs in the native thread, the rest in the hub: no blocking there."""

    cancelled: bool
    signs: int
    """Rises whenever the work shows that it goes on."""

    def results(self) -> Iterator[Any]:
        """The work. Looks at `cancelled` between results."""

    def receive(self, result: Any) -> None:
        """One result, in order."""

    def finish(self, error: BaseException | None) -> None:
        """Called exactly once, also for a job that never ran."""


class Stoppable:
    """What a job's work asks, at every cell of a prompt and at every token: each question is a sign of life."""

    def __init__(self) -> None:
        self.cancelled = False
        self.signs = 0

    def should_stop(self) -> bool:
        self.signs += 1
        return self.cancelled


class Once(Stoppable, Generic[T]):
    """A job with a single result. `compute` is given a function that says whether to stop."""

    def __init__(self, compute: Callable[[Callable[[], bool]], T], release: Callable[[], None]) -> None:
        super().__init__()
        self._compute = compute
        self._release = release
        self._result: AsyncResult[T] = AsyncResult()

    def results(self) -> Iterator[T]:
        yield self._compute(self.should_stop)

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
