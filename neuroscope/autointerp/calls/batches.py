"""Asks a service by batch: cheaper, within a day, and never twice.

A batch is in the ledger before it is handed in and again when it has its id, so a killed run finds it: by its id, or,
killed in between, among the account's latest batches by its time and size and then by the custom ids of its results.
What expired or met an error goes into the next round.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from neuroscope.autointerp.calls.ask import Ask, BatchClient, Fault, Reply, StopRun
from neuroscope.autointerp.calls.ledger import Batch
from neuroscope.autointerp.calls.records import Records, Tally

log = logging.getLogger(__name__)

BATCH_SIZE = 4_000
BATCH_BYTES = 128_000_000
"""Asks of a batch, and bytes: the service takes 100,000 or 256 MB. Prompts are some 10 kB."""
REQUEST_BYTES = 1_000
"""Of what is around the texts of an ask."""
ROUNDS = 3
POLL_SECONDS = 30.0
MAX_TRIES = 8
CLOCK_SKEW_SECONDS = 300.0

_WITHIN = "its results come within 24 hours of its making"

T = TypeVar("T")


def finish_batches(
    client: BatchClient, records: Records, *, purpose: str, poll_seconds: float = POLL_SECONDS
) -> None:
    """Takes up the batches that an earlier run left, at no further cost: else their asks would be paid for twice."""
    _Batches(client, records, BATCH_SIZE, poll_seconds).finish_earlier(purpose)
    records.tally.states.clear()  # the run that follows counts every ask


def run_batches(
    asks: Iterable[Ask],
    client: BatchClient,
    records: Records,
    *,
    size: int = BATCH_SIZE,
    poll_seconds: float = POLL_SECONDS,
) -> Tally:
    """Asks what is not settled, and returns how every ask ended.

    `asks` is gone over once a round. Raises StopRun when nothing more can be asked, after the batches under way
    were written down.
    """
    run = _Batches(client, records, size, poll_seconds)
    for number in range(ROUNDS):
        if not run.round(asks, last=number == ROUNDS - 1):
            break
    if run.reason is not None:
        raise run.reason
    run.count(asks)
    return records.tally


@dataclass
class _Queue:
    """Asks to come, one of which can be put back."""

    asks: Iterator[Ask]
    put_back: list[Ask] = field(default_factory=list)

    def next(self) -> Ask | None:
        return self.put_back.pop() if self.put_back else next(self.asks, None)


@dataclass
class _Batches:
    client: BatchClient
    records: Records
    size: int
    poll_seconds: float
    reason: StopRun | None = None

    def finish_earlier(self, purpose: str) -> None:
        ledger = self.records.ledger
        for batch in ledger.open_batches(purpose, self.records.model):
            known = batch if batch.id is not None else self._find(batch)
            if known is None:
                ledger.end_batch(batch)  # it never reached the service
            else:
                log.info("batch %s of an earlier run is taken up again: %s", known.id, _WITHIN)
                self.records.budget.reserve(known.reserved_usd)
                self._collect(known, last=False)

    def round(self, asks: Iterable[Ask], *, last: bool) -> bool:
        """One round of batches; whether something is left to be asked again."""
        again = False
        queue = _Queue(self._unsettled(asks))
        while self.reason is None and (under_way := self._hand_in(queue)):
            for batch in under_way:
                again = self._collect(batch, last=last) or again
        return again and self.reason is None

    def count(self, asks: Iterable[Ask]) -> None:
        """Counts every ask once, by the state that it is left in."""
        records = self.records
        records.tally.states.clear()
        for ask in asks:
            if calls := records.ledger.of(ask.key, records.model):
                records.known(calls[-1])

    def _unsettled(self, asks: Iterable[Ask]) -> Iterator[Ask]:
        return (ask for ask in asks if self.records.is_open(ask.key))

    def _hand_in(self, queue: _Queue) -> list[Batch]:
        """As many batches as there are asks and money for; what is left waits until these have told their cost."""
        under_way: list[Batch] = []
        while self.reason is None:
            chosen, reserved = self._choose(queue)
            if not chosen:
                break
            try:
                under_way.append(self._submit(chosen, reserved))
            except StopRun as reason:
                self.records.budget.settle(reserved, 0.0)
                self.reason = reason
        if not under_way and queue.put_back and self.reason is None:
            self.reason = StopRun(self.records.budget.exhausted())
        return under_way

    def _choose(self, queue: _Queue) -> tuple[list[Ask], float]:
        """The asks of one batch, and the dollars set aside for them."""
        records, chosen, reserved = self.records, list[Ask](), 0.0
        left = BATCH_BYTES
        while len(chosen) < self.size and (ask := queue.next()) is not None:
            left -= sum(len(json.dumps(part)) for part in (ask.system, ask.user, ask.schema)) + REQUEST_BYTES
            if left < 0 and chosen:
                queue.put_back.append(ask)
                break
            dearest = records.price.at_most(ask, self.client.max_tokens(ask), batch=True)
            if not records.budget.reserve(dearest):
                queue.put_back.append(ask)
                break
            chosen.append(ask)
            reserved += dearest
        return chosen, reserved

    def _submit(self, asks: list[Ask], reserved: float) -> Batch:
        ledger = self.records.ledger
        keys = tuple(ask.key for ask in asks)
        batch = Batch(secrets.token_hex(6), self.records.model, keys, reserved, time.time())
        ledger.begin_batch(batch)
        named = [(f"{batch.token}-{index}", ask) for index, ask in enumerate(asks)]
        tries = 0
        while batch.id is None:
            try:
                batch = replace(batch, id=self.client.submit(named))
            except StopRun:
                ledger.end_batch(batch)
                raise
            except Fault as fault:  # the answer may be lost, and the batch handed in all the same
                tries += 1
                batch = self._find(batch) or batch
                if batch.id is None and (not fault.retryable or tries >= MAX_TRIES):
                    ledger.end_batch(batch)
                    remedy = "later" if fault.retryable else "without batches (--no-batch)"
                    raise StopRun(
                        f"A batch could not be handed in: {fault}. Run this again {remedy}."
                    ) from fault
                time.sleep(self._pause(fault))
        ledger.begin_batch(batch)
        log.info("batch %s: %d prompts handed in", batch.id, len(asks))
        return batch

    def _find(self, batch: Batch) -> Batch | None:
        """`batch` with its id, when the service has it."""
        for listing in self._patiently(self.client.recent):
            if listing.size == len(batch.keys) and listing.created_at >= batch.at - CLOCK_SKEW_SECONDS:
                self._wait_for(listing.id)
                if self._patiently(partial(self._holds, listing.id, batch)):
                    return replace(batch, id=listing.id)
        return None

    def _holds(self, identity: str, batch: Batch) -> bool:
        """Whether the results of `identity` bear the custom ids of `batch`."""
        first = next(iter(self.client.results(identity)), None)
        return first is not None and first[0].startswith(f"{batch.token}-")

    def _collect(self, batch: Batch, *, last: bool) -> bool:
        """Writes a batch's results down; whether some of its asks are to be asked again."""
        assert batch.id is not None
        self._wait_for(batch.id)
        self._patiently(lambda: self._write(batch, last=last))
        self.records.budget.settle(batch.reserved_usd, 0.0)
        self.records.ledger.end_batch(batch)
        return any(self.records.is_open(key) for key in batch.keys)

    def _write(self, batch: Batch, *, last: bool) -> None:
        """Goes over the results once more where it was cut off: a row that is there is not written again."""
        assert batch.id is not None
        records = self.records
        for name, result in self.client.results(batch.id):
            key = batch.keys[int(name.removeprefix(f"{batch.token}-"))]
            if any(call.batch == batch.id for call in records.ledger.of(key, records.model)):
                continue
            if isinstance(result, Reply):
                records.reply(key, result, batch=batch.id)
            elif last or not result.retryable:
                records.fault(key, result, batch=batch.id)
            else:
                records.tally.retries += 1

    def _wait_for(self, identity: str) -> None:
        while not self._patiently(lambda: self.client.ended(identity)):
            time.sleep(self.poll_seconds)

    def _patiently(self, call: Callable[[], T]) -> T:
        """A question about batches, repeated when it brings no reply. Raises StopRun when it keeps failing."""
        for _ in range(MAX_TRIES - 1):
            try:
                return call()
            except Fault as fault:
                time.sleep(self._pause(fault))
        try:
            return call()
        except Fault as fault:
            raise StopRun(
                f"The service does not tell of its batches: {fault}. They are noted in {self.records.ledger.path}: run "
                "this again later and it takes them up, at no further cost."
            ) from fault

    def _pause(self, fault: Fault) -> float:
        return self.poll_seconds if fault.retry_after is None else fault.retry_after
