"""What one check says, and running many so that none can stop, delay or silence the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Status = Literal["ok", "note", "problem"]
"""A problem keeps the pipeline or the server from working; a note is worth knowing."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    found: str
    wanted: str = ""
    """What would be better, or is needed; empty where all is well."""
    next: str | None = None
    """The command that mends a problem."""


class Later(Generic[T]):
    """Work in a thread of its own, whose end nobody has to wait for: a hung disk or network ends with the process."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work = work
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def result(self, seconds: float) -> T:
        """What the work returned, or raises what it raised; TimeoutError when it takes longer than `seconds`."""
        self._thread.join(max(seconds, 0.0))
        if self._error is not None:
            raise self._error
        if not self._outcome:
            raise TimeoutError(f"{self._thread.name} gave no answer")
        return self._outcome[0]

    def _run(self) -> None:
        try:
            self._outcome.append(self._work())
        except BaseException as error:  # also SystemExit: a check must not end without a word
            self._error = error


def run_checks(checks: Iterable[tuple[str, Callable[[], list[Check]]]], seconds: float) -> list[Check]:
    """Every check's lines in the order given; all run at once, for `seconds` at most.

    One that fails, or takes too long, is a line that says so by name.
    """
    end = time.monotonic() + seconds
    begun = [(name, Later(look, name)) for name, look in checks]
    found: list[Check] = []
    for name, later in begun:
        try:
            found += later.result(end - time.monotonic())
        except TimeoutError:
            found.append(Check(name, "note", f"this check gave no answer within {seconds:.0f} s"))
        except Exception as error:  # whatever is broken, the other lines are still worth reading
            said = " ".join(str(error).split())[:300]
            found.append(Check(name, "note", f"this check itself failed ({type(error).__name__}: {said})"))
        except SystemExit:
            found.append(Check(name, "note", "this check itself failed: something in it ended the process"))
    return found
