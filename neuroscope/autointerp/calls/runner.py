"""Asks a service many things at once: retries, one pause for all, a budget, and a stop that keeps what was answered.

Threads call the service; one thread, the caller's, keeps the ledger. An ask that is settled in the ledger is not
asked again, so a killed run goes on where it was.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from neuroscope.autointerp.calls.ask import Ask, Client, Fault, Reply, StopRun
from neuroscope.autointerp.calls.records import Records, Tally

log = logging.getLogger(__name__)

MAX_TRIES = 8
"""Calls for one ask in one run before it is left for the next."""
MAX_WAITS = 100
"""How often one ask may be told by the service when to come back; such answers are no failures."""
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.5, 60.0
OUTAGE = 20
"""So many asks in a row without a reply, or as many as are asked at once, and the service is taken to be away."""


class Pace:
    """When the next call may be made: service and backoff have a say. Threads share it."""

    def __init__(self, first_backoff: float = FIRST_BACKOFF_SECONDS) -> None:
        self.first_backoff = first_backoff
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._resume_at = 0.0

    def wait(self) -> None:
        """Until the pause for all is over, or the run stops."""
        while (left := self._resume_at - time.monotonic()) > 0 and not self.stop.is_set():
            self.stop.wait(left)

    def pause_all(self, seconds: float) -> None:
        """No call is made for `seconds`, whoever was told so."""
        with self._lock:
            until = time.monotonic() + seconds
            if until > self._resume_at:
                self._resume_at = until
                if seconds > LONGEST_BACKOFF_SECONDS:
                    log.info("the service asks for a pause of %.0f seconds", seconds)

    def back_off(self, tries: int) -> None:
        """Waits longer with every try, by a random share, so that threads do not come back together."""
        longest = min(LONGEST_BACKOFF_SECONDS, self.first_backoff * 2**tries)
        self.stop.wait(longest * random.uniform(0.5, 1.0))


def run_asks(
    asks: Iterable[Ask], client: Client, records: Records, *, concurrency: int, pace: Pace | None = None
) -> Tally:
    """Asks what is not settled, and returns how every ask ended.

    `asks` is gone over once, and only those in flight are held. Raises StopRun when nothing more can be asked
    (budget, key, outage), after every call in flight was written down.
    """
    run = _Run(client, records, concurrency, pace or Pace())
    run.ask_all(asks)
    return records.tally


class _Run:
    def __init__(self, client: Client, records: Records, concurrency: int, pace: Pace) -> None:
        self._client, self._records, self._concurrency, self._pace = client, records, concurrency, pace
        self._flying: dict[Future[Reply], tuple[Ask, float]] = {}
        self._again: list[Ask] = []
        self._without_reply: list[tuple[Ask, Fault]] = []
        self._reason: StopRun | None = None
        self._retries = 0
        self._lock = threading.Lock()

    def ask_all(self, asks: Iterable[Ask]) -> None:
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="ask")
        try:
            for ask in asks:
                if (settled := self._records.ledger.settled(ask.key, self._records.model)) is not None:
                    self._records.known(settled)
                    continue
                self._start(ask, pool)
                while self._again and self._reason is None:
                    self._start(self._again.pop(), pool)
                if self._reason is not None:
                    break
            while self._flying or (self._again and self._reason is None):
                self._collect()
                while self._again and self._reason is None:
                    self._start(self._again.pop(), pool)
            if self._reason is None:
                self._write_failed()
        finally:
            self._pace.stop.set()
            self._collect(at_once=True)
            pool.shutdown(wait=False, cancel_futures=True)
        if self._reason is not None:
            raise self._reason

    def _start(self, ask: Ask, pool: ThreadPoolExecutor) -> None:
        """Puts an ask on its way, once there is a thread and money for it."""
        records = self._records
        dearest = records.price.at_most(ask, self._client.max_tokens(ask))
        while self._reason is None:
            if len(self._flying) >= self._concurrency:
                self._collect()
            elif records.budget.reserve(dearest):
                self._flying[pool.submit(self._call, ask)] = (ask, dearest)
                return
            elif self._flying:  # they may cost less than was set aside for them
                self._collect()
            else:
                self._stop(StopRun(records.budget.exhausted()))

    def _stop(self, reason: StopRun) -> None:
        self._reason = self._reason or reason
        self._pace.stop.set()

    def _collect(self, *, at_once: bool = False) -> None:
        """Writes down the calls that have ended; waits for one unless `at_once`."""
        if not self._flying:
            return
        done, _ = wait(self._flying, timeout=0 if at_once else None, return_when=FIRST_COMPLETED)
        for future in done:
            ask, reserved = self._flying.pop(future)
            self._records.tally.retries = self._retries
            self._end(ask, reserved, future)

    def _end(self, ask: Ask, reserved: float, future: Future[Reply]) -> None:
        records = self._records
        try:
            reply = future.result()
        except StopRun as reason:
            records.budget.settle(reserved, 0.0)
            self._stop(reason)
        except Fault as fault:
            records.budget.settle(reserved, 0.0)
            if self._reason is not None:  # cut short by the stop: neither tried enough nor failed
                return
            self._without_reply.append((ask, fault))
            if len(self._without_reply) >= max(OUTAGE, self._concurrency):
                self._stop(_away(len(self._without_reply), fault))
                self._without_reply.clear()
        else:
            self._write_failed()
            records.reply(ask.key, reply, reserved=reserved)
            if records.ledger.settled(ask.key, records.model) is None:
                self._again.append(ask)

    def _write_failed(self) -> None:
        """Writes down the asks that got no reply, once it is known that others do: else none is to blame for it."""
        for ask, fault in self._without_reply:
            self._records.fault(ask.key, fault)
        self._without_reply.clear()

    def _call(self, ask: Ask) -> Reply:
        """One ask in a thread, with its retries."""
        tries = waits = 0
        while True:
            self._pace.wait()
            if self._pace.stop.is_set():
                raise Fault("the run stopped")
            try:
                return self._client.ask(ask)
            except Fault as fault:
                tries, waits = (tries, waits + 1) if fault.retry_after is not None else (tries + 1, waits)
                if (
                    not fault.retryable
                    or tries >= MAX_TRIES
                    or waits >= MAX_WAITS
                    or self._pace.stop.is_set()
                ):
                    raise
                with self._lock:
                    self._retries += 1
                if fault.retry_after is not None:
                    self._pace.pause_all(fault.retry_after)
                else:
                    self._pace.back_off(tries - 1)


def _away(count: int, fault: Fault) -> StopRun:
    if not fault.retryable:
        return StopRun(
            f"{count} calls in a row were turned down, the last: {fault}. Every answer so far is kept. Change what the "
            "service does not take (labels.*, see config/README.md), then run this again: it goes on where it stopped."
        )
    return StopRun(
        f"{count} calls in a row got no reply, the last: {fault}. Every answer so far is kept. Run this again when the "
        "service answers: it goes on where it stopped."
    )
