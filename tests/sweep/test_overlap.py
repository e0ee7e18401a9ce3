"""What runs beside the model: order, errors, and how much is under way at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from neuroscope.sweep.overlap import Behind, ahead


def test_items_come_in_order_and_the_next_one_is_made_meanwhile() -> None:
    made = [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    seen = []
    for number in ahead(items()):
        seen.append(number)
        if number + 1 < len(made):
            assert made[number + 1].wait(60)
        if number + 2 < len(made):
            assert not made[number + 2].is_set()
    assert seen == [0, 1, 2, 3]


def test_an_error_ahead_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="no more"):
        next(found)


def test_who_leaves_early_leaves_no_thread_behind() -> None:
    for _ in ahead(range(10)):
        break
    for thread in threading.enumerate():
        if thread.name.startswith("sweep-"):
            thread.join(60)
            assert not thread.is_alive()


def test_jobs_are_done_in_order_and_all_of_them() -> None:
    done: list[int] = []
    with Behind() as behind:
        for number in range(5):
            behind.do(lambda number=number: done.append(number))  # type: ignore[misc]
            assert len(done) >= number  # all before it
    assert done == [0, 1, 2, 3, 4]


def fail() -> None:
    raise OSError("disk full")


def run(*jobs: Callable[[], object], then: type[BaseException] | None = None) -> None:
    with Behind() as behind:
        for job in jobs:
            behind.do(job)
        if then is not None:
            raise then


def test_a_failed_job_stops_what_follows_it() -> None:
    done: list[int] = []
    with pytest.raises(OSError, match="disk full"):
        run(fail, lambda: done.append(1))
    assert done == []


def test_the_last_job_s_error_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="disk full"):
        run(fail)


def test_an_error_of_the_caller_is_not_hidden_by_that_of_a_job() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fail, then=KeyboardInterrupt)
