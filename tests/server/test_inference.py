"""The model's thread and its queue, with jobs that do nothing but tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import gevent
import pytest

from neuroscope.server.inference import Inference, NativeThread
from neuroscope.server.jobs import Once, Stoppable
from neuroscope.server.problems import Problem


class Telling(Stoppable):
    """A job that yields numbers and writes down what happens to it."""

    def __init__(
        self, count: int = 3, *, fails: bool = False, wait: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self.count = count
        self.fails = fails
        self.wait = wait
        self.received: list[int] = []
        self.ends: list[BaseException | None] = []
        self.thread: int | None = None

    def results(self) -> Iterator[int]:
        self.thread = threading.get_ident()
        for number in range(self.count):
            self.wait()
            if self.cancelled:
                return
            if self.fails and number == 1:
                raise RuntimeError("as told")
            yield number

    def receive(self, result: int) -> None:
        assert threading.get_ident() != self.thread, "results are received in the hub"
        self.received.append(result)

    def finish(self, error: BaseException | None) -> None:
        self.ends.append(error)


def test_an_abandoned_job_ends_once_and_its_later_results_are_dropped(inference: Inference) -> None:
    goes_on = threading.Event()
    job = Telling(wait=lambda: goes_on.wait(60) and None)
    inference.submit(job)
    assert not inference.wait_idle(0.1)
    inference.abandon()
    inference.abandon()
    assert job.ends == [None]
    goes_on.set()
    assert inference.wait_idle(10)
    assert job.ends == [None]
    assert job.received == []
    after = Telling()
    inference.submit(after)
    assert inference.wait_idle(10)
    assert after.received == [0, 1, 2]


@pytest.fixture
def inference() -> Inference:
    return Inference(NativeThread(), 2)


def test_results_come_in_order_and_one_end(inference: Inference) -> None:
    job = Telling(50)
    inference.submit(job)
    assert inference.wait_idle(10)
    assert job.received == list(range(50))
    assert job.ends == [None]


def test_a_failing_job_ends_with_its_error_and_the_next_one_runs(inference: Inference) -> None:
    failing, next_one = Telling(fails=True), Telling()
    inference.submit(failing)
    inference.submit(next_one)
    assert inference.wait_idle(10)
    assert failing.received == [0]
    assert str(failing.ends[0]) == "as told"
    assert next_one.ends == [None]


def test_a_job_whose_results_cannot_be_received_does_not_stop_the_others(inference: Inference) -> None:
    class Broken(Telling):
        def receive(self, result: int) -> None:
            raise KeyError(result)

    broken, next_one = Broken(), Telling()
    inference.submit(broken)
    inference.submit(next_one)
    assert inference.wait_idle(10)
    assert broken.ends == [None]
    assert next_one.received == [0, 1, 2]


def test_a_waiting_job_can_leave_and_never_runs(inference: Inference) -> None:
    gate = threading.Event()
    running, waiting = (
        Telling(wait=lambda: time.sleep(0.001) if gate.is_set() else time.sleep(0.05)),
        Telling(),
    )
    inference.submit(running)
    inference.submit(waiting)
    inference.cancel(waiting)
    assert waiting.ends == [None]
    gate.set()
    assert inference.wait_idle(10)
    assert waiting.thread is None
    assert running.received == [0, 1, 2]


def test_a_running_job_ends_at_its_next_result(inference: Inference) -> None:
    job = Telling(100_000, wait=lambda: time.sleep(0.001))
    inference.submit(job)
    while not job.received:
        gevent.sleep(0.001)
    inference.cancel_all()
    assert inference.wait_idle(10)
    assert len(job.received) < 10_000
    assert job.ends == [None]


def test_places_are_counted_and_given_back_once(inference: Inference) -> None:
    places = [inference.take_place() for _ in range(3)]
    with pytest.raises(Problem, match="queue is full") as full:
        inference.take_place()
    assert (full.value.status, full.value.retry_after_s) == (429, 5)
    places[0]()
    places[0]()
    inference.take_place()
    with pytest.raises(Problem):
        inference.take_place()


def test_the_hub_goes_on_while_the_thread_works() -> None:
    thread, ticks = NativeThread(), 0
    done = gevent.spawn(thread.call, time.sleep, 0.2)
    while not done.ready():
        ticks += 1
        gevent.sleep(0.001)
    assert ticks > 5


def test_what_a_call_raises_is_raised_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        NativeThread().call(divmod, 1, 0)
    assert capfd.readouterr().err == ""


def test_a_result_that_was_stopped_half_way_is_none(inference: Inference) -> None:
    begun = threading.Event()

    def half(is_given_up: Callable[[], bool]) -> list[int]:
        begun.set()
        while not is_given_up():
            time.sleep(0.01)
        return [1, 2]

    job = Once(half, inference.take_place())
    inference.submit(job)
    while not begun.is_set():
        gevent.sleep(0.01)
    inference.cancel(job)
    with pytest.raises(Problem, match="given up"):
        job.wait()


class Tokens(Telling):
    """Asks before each number whether to go on, as the engine does, and makes one each time it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Semaphore(0)

    def results(self) -> Iterator[int]:
        number = 0
        while not self.should_stop():
            self.may_go_on.acquire()
            yield number
            number += 1


@pytest.mark.parametrize("written", [0, 3])
def test_no_second_token_is_made_after_a_job_was_given_up(inference: Inference, written: int) -> None:
    job = Tokens()
    inference.submit(job)
    for _ in range(written):
        job.may_go_on.release()
    with gevent.Timeout(10):
        while len(job.received) < written or job.signs <= written:
            gevent.sleep(0.001)
    inference.cancel(job)
    for _ in range(100):
        job.may_go_on.release()
    assert inference.wait_idle(10)
    assert job.received == list(range(written + 1))
    assert job.ends == [None]


def test_a_sign_of_life_is_seen_for_every_question_and_none_while_idle(inference: Inference) -> None:
    assert inference.pulse is None
    job = Tokens()
    inference.submit(job)
    with gevent.Timeout(10):
        while inference.pulse is None or job.signs == 0:
            gevent.sleep(0.001)
        first = inference.pulse
        gevent.sleep(0.05)
        assert inference.pulse == first
        job.may_go_on.release()
        while inference.pulse == first:
            gevent.sleep(0.001)
    inference.cancel(job)
    job.may_go_on.release()
    assert inference.wait_idle(10)
    assert inference.pulse is None


def test_with_another_thread_nothing_of_the_old_one_is_heard_and_everyone_is_told(
    inference: Inference,
) -> None:
    goes_on = threading.Event()
    old = inference._thread
    hung, waiting = Telling(wait=lambda: goes_on.wait(60) and None), Telling()
    inference.submit(hung)
    inference.submit(waiting)
    with gevent.Timeout(10):
        while hung.thread is None:
            gevent.sleep(0.001)
    inference.replace_thread(
        NativeThread(), running=Problem(500, "hung"), waiting=lambda: Problem(503, "restarting")
    )
    assert [str(end) for end in hung.ends + waiting.ends] == ["hung", "restarting"]
    assert not inference.busy
    after = Telling()
    inference.submit(after)
    assert inference.wait_idle(10)
    assert (after.received, after.ends) == ([0, 1, 2], [None])
    assert after.thread != hung.thread
    goes_on.set()
    with gevent.Timeout(10):
        while len(old._pool):  # its thread has ended
            gevent.sleep(0.01)
    assert (hung.received, len(hung.ends), waiting.thread) == ([], 1, None)


def test_a_thread_that_cannot_be_had_fails_its_job_and_not_the_queue() -> None:
    class Refusing(NativeThread):
        refusals = 1

        def call(self, function, *args, **kwargs):  # type: ignore[no-untyped-def]
            if self.refusals:
                self.refusals -= 1
                raise RuntimeError("can't start new thread")
            return super().call(function, *args, **kwargs)

    inference = Inference(Refusing(), 2)
    failing, next_one = Telling(), Telling()
    inference.submit(failing)
    inference.submit(next_one)
    assert inference.wait_idle(10)
    assert str(failing.ends[0]) == "can't start new thread"
    assert next_one.ends == [None]
    assert inference.failures == 0


def test_failures_are_counted_until_a_job_goes_well(inference: Inference) -> None:
    for count in (1, 2, 3):
        inference.submit(Telling(fails=True))
        assert inference.wait_idle(10)
        assert inference.failures == count
    inference.submit(Telling(0))  # given up before its first result
    assert inference.wait_idle(10)
    assert inference.failures == 3
    inference.submit(Telling())
    assert inference.wait_idle(10)
    assert inference.failures == 0
