"""From what a service sent back to a row of the ledger, and the count of how asks ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from neuroscope.autointerp.calls.ask import Check, Fault, Key, Reply, Usage
from neuroscope.autointerp.calls.ledger import Call, Ledger, now
from neuroscope.autointerp.calls.prices import Budget, Price


@dataclass(slots=True)
class Tally:
    """How far a run is."""

    states: Counter[str] = field(default_factory=Counter)
    """Asks that are settled, or given up for this run, by state."""
    calls: int = 0
    """Replies paid for in this run."""
    retries: int = 0
    """Calls of this run that brought no reply and were repeated."""
    spent: float = 0.0
    """Dollars, those of interrupted runs included."""

    @property
    def ended(self) -> int:
        return self.states.total()


@dataclass(slots=True)
class Records:
    """Writes calls to the ledger. One thread uses it."""

    ledger: Ledger
    model: str
    price: Price
    budget: Budget
    check: Check
    accepted: str
    """State of a good answer."""
    progress: Callable[[Tally], None]
    tally: Tally = field(default_factory=Tally)
    failed: set[Key] = field(default_factory=set)
    """Asks that this run has given up and the next may try again."""

    def is_open(self, key: Key) -> bool:
        """Whether an ask is still to be asked in this run."""
        return key not in self.failed and self.ledger.settled(key, self.model) is None

    def reply(self, key: Key, reply: Reply, *, reserved: float = 0.0, batch: str | None = None) -> Call:
        """Writes a reply down and returns its row; the state of a text that is no answer is `invalid`."""
        usd = self.price.of(reply.usage, batch=batch is not None)
        state, reason = self._judge(key, reply)
        call = self._write(key, state, reason, reply=reply, usd=usd, batch=batch)
        self.budget.settle(reserved, usd)
        self.tally.calls += 1
        self._count(key)
        return call

    def fault(self, key: Key, fault: Fault, *, batch: str | None = None) -> Call:
        """Writes down that an ask got no reply in this run."""
        call = self._write(key, "failed", str(fault), batch=batch)
        self.failed.add(key)
        self.tally.states["failed"] += 1
        self._tell()
        return call

    def known(self, call: Call) -> None:
        """Counts an ask that was settled before."""
        self.tally.states[call.state] += 1
        self._tell()

    def _judge(self, key: Key, reply: Reply) -> tuple[str, str | None]:
        if reply.stop != "end":
            return reply.stop, None
        reason = self.check(key, reply.text)
        return (self.accepted, None) if reason is None else ("invalid", reason)

    def _write(
        self,
        key: Key,
        state: str,
        reason: str | None,
        *,
        reply: Reply | None = None,
        usd: float = 0.0,
        batch: str | None = None,
    ) -> Call:
        feature, purpose, content_hash = key
        attempt = len(self.ledger.of(key, self.model)) + 1
        call = Call(
            feature,
            purpose,
            content_hash,
            self.model,
            attempt,
            state,
            text=None if reply is None else reply.text,
            reason=reason,
            usage=Usage() if reply is None else reply.usage,
            usd=usd,
            batch=batch,
            at=now(),
        )
        self.ledger.write(call)
        return call

    def _count(self, key: Key) -> None:
        settled = self.ledger.settled(key, self.model)
        if settled is not None:
            self.tally.states[settled.state] += 1
        self._tell()

    def _tell(self) -> None:
        self.tally.spent = self.budget.spent
        self.progress(self.tally)
