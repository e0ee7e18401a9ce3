"""Looks after the engine: one that hangs or has died is taken from its callers, and loaded anew once.

It *hangs* when the running job shows no sign of life for `serve.hang_s`: the engine gives one at every cell of
a prompt and at every token. It has *died* when answers fail one after another and a short test of the model's
own fails too; one failing request, however often it is sent again, is not the engine's end. Where the process
itself is the trouble (CUDA's after a failed assertion, memory that a hung thread keeps) loading anew fails, and
another process takes over, once.

Time is counted in turns of this greenlet: it stands still while the process does, so that a laptop that wakes
up finds its engine well. A hub that hangs has gunicorn's `timeout` after it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

import gevent

from neuroscope.errors import NeuroscopeError
from neuroscope.models.sampling_options import Sampling
from neuroscope.server.jobs import Once
from neuroscope.server.problems import RETRY_AFTER_S, Problem

if TYPE_CHECKING:
    from neuroscope.server.loaded import Load
    from neuroscope.server.service import Service

log = logging.getLogger(__name__)

TURN_S = 0.25
BACKOFF_S = 2.0
"""Before it is loaded anew: a driver that has just failed gets a moment."""
RELOAD_S = 1800.0
"""Everything is on this machine by then, so that only a driver that hangs takes so long."""
STABLE_S = 600.0
"""An engine that was well for this long after a restart may be restarted again."""
FAILURES = 2
"""Answers that fail in a row before the engine is put to the test."""


@dataclass(frozen=True, slots=True)
class Sickness:
    """Why there is no engine, for /readyz and for whoever asks for one."""

    status: str
    """restarting or failed"""
    reason: str
    since: str
    """UTC, ISO 8601"""
    pairing: str

    def words(self) -> dict[str, str | None]:
        return {"status": self.status, "reason": self.reason, "since": self.since, "next": self.next}

    def problem(self) -> Problem:
        if self.status == "restarting":
            message = f"{self.reason} It is being loaded anew; ask again in a moment."
            return Problem(503, message, code="engine_restarting", retry_after_s=RETRY_AFTER_S)
        message = f"{self.reason} {self.next}"
        return Problem(503, message, code="engine_failed", should_retry=False)

    @property
    def next(self) -> str | None:
        """What to do, where it does not mend itself."""
        if self.status == "restarting":
            return None
        return (
            f"End the server and start it again: NEUROSCOPE_PAIRING={self.pairing} gunicorn neuroscope.wsgi"
        )


class NoEngine:
    """Stands where the engine was: whatever is asked of it, the answer is why it is gone."""

    def __init__(self, why: Callable[[], Problem]) -> None:
        self._why = why

    def __getattr__(self, name: str) -> NoReturn:
        raise self._why()


class Watchdog:
    """Watches from the hub until the server stops or there is nothing left to save."""

    def __init__(
        self,
        service: Service,
        load: Load,
        *,
        leave_process: Callable[[], None] = lambda: None,
        turn_s: float = TURN_S,
        backoff_s: float = BACKOFF_S,
        stable_s: float = STABLE_S,
    ) -> None:
        self._service = service
        self._load = load
        self._pairing = service.loaded.pairing
        self._leave_process = leave_process  # for another to take over; returns when it may not
        self._hang_s = service.serve.hang_s
        self._turn_s = turn_s
        self._backoff_s = backoff_s
        self._stable_s = stable_s
        self._well_s = math.inf  # since the last restart
        self._quiet_s = 0.0
        self._pulse: tuple[int, int] | None = None
        self._testing = False
        self._dead: str | None = None

    def run(self) -> None:
        while True:
            gevent.sleep(self._turn_s)
            if self._service.stopping:
                return
            self._well_s += self._turn_s
            if self._hangs():
                quiet = f"The model has shown no sign of life for {self._hang_s:g} s."
                more = "This request was given up and is better not sent again as it is."
                goes_on = self._restart(
                    quiet, Problem(500, f"{quiet} {more}", code="engine_hung", should_retry=False)
                )
            elif self._has_died():
                goes_on = self._restart(
                    f"Answers fail one after another, and so does a test of the model ({self._dead})."
                )
            else:
                continue
            if not goes_on:
                return

    def _hangs(self) -> bool:
        pulse = self._service.inference.pulse
        self._quiet_s = self._quiet_s + self._turn_s if pulse is not None and pulse == self._pulse else 0.0
        self._pulse = pulse
        return 0 < self._hang_s <= self._quiet_s

    def _has_died(self) -> bool:
        if self._service.inference.failures >= FAILURES and not self._testing:
            self._testing = True
            gevent.spawn(self._test)
        return self._dead is not None

    def _test(self) -> None:
        """One token after a short prompt, before all who wait. A test that hangs is seen as any job that does."""
        service = self._service
        try:
            prompt, engine = service.prepare("a"), service.loaded.engine
            job = Once(
                lambda should_stop: list(
                    engine.generate(prompt, Sampling(max_tokens=1), should_stop=should_stop)
                ),
                lambda: None,
            )
            service.inference.submit(job, first=True)
            job.wait()
        except (Problem, NeuroscopeError):
            service.inference.failures = 0  # it was refused in words, or the engine is gone already
        except Exception as error:  # whatever it is, the engine cannot do without it
            self._dead = type(error).__name__
        else:
            log.warning("answers failed one after another; the model itself passes a test and goes on")
        finally:
            self._testing = False

    def _restart(self, reason: str, running: Problem | None = None) -> bool:
        """Whether there is an engine again."""
        service = self._service
        if self._well_s < self._stable_s:
            self._fail(f"{reason} It had been loaded anew {self._well_s:.0f} s before.", running)
            return False
        self._give_up("restarting", reason, running)
        log.error("%s It is loaded anew in %g s.", reason, self._backoff_s)
        gevent.sleep(self._backoff_s)
        if service.stopping:
            return False
        try:
            with gevent.Timeout(RELOAD_S, TimeoutError(f"it took more than {RELOAD_S:g} s")):
                service.free_engine()  # before the new model needs the room of the old one
                service.load(self._load)
        except NeuroscopeError as error:
            self._fail(f"{reason} It could not be loaded anew: {error}")
            return False
        except Exception as error:  # the border of the engine: the server goes on without it
            log.exception("the engine could not be loaded anew in this process")
            self._leave_process()
            unloaded = f"It could not be loaded anew ({type(error).__name__}); the server's log says why."
            self._fail(f"{reason} {unloaded}")
            return False
        log.warning("the engine is loaded anew")
        self._well_s = self._quiet_s = 0.0
        self._dead = None
        return True

    def _fail(self, reason: str, running: Problem | None = None) -> None:
        sickness = self._give_up("failed", reason, running)
        log.error("%s Requests for the model are refused from now on. %s", reason, sickness.next)

    def _give_up(self, status: str, reason: str, running: Problem | None) -> Sickness:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        sickness = Sickness(status, reason, now, self._pairing)
        self._service.give_engine_up(sickness, running or sickness.problem())
        return sickness
