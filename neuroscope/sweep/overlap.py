"""Work beside the model's: the next chunk is tokenised and the last one written while this one runs.

One item ahead, one behind, in order; what is made does not depend on it. NumPy, the tokenizer and PyTorch leave the
interpreter to others for most of their work. An error reaches the caller at the next step, and nothing is left running.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

Item = TypeVar("Item")


def ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """The same items, each made while its predecessor is in use."""
    source = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(1, "sweep-ahead") as thread:
        coming = thread.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, source, end)
            yield item


class Behind:
    """Runs jobs in a thread, one at a time: a second waits for the first. An error is raised by what follows it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "sweep-behind")
        self._last: Future[object] | None = None

    def do(self, job: Callable[[], object]) -> None:
        self.wait()
        self._last = self._thread.submit(job)

    def wait(self) -> None:
        """Until the last job is done. Raises its error, once."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._thread.shutdown()
