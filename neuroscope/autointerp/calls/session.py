"""One run over many asks, from the open ledger to the last answer: the call that labelers and scorers make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from neuroscope.autointerp.calls.ask import Ask, BatchClient, Check, Client, Key
from neuroscope.autointerp.calls.batches import POLL_SECONDS, finish_batches, run_batches
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.prices import Budget, Price
from neuroscope.autointerp.calls.records import Records, Tally
from neuroscope.autointerp.calls.runner import FIRST_BACKOFF_SECONDS, Pace, run_asks
from neuroscope.errors import LabelError


@dataclass(frozen=True, slots=True)
class Terms:
    """How asks are made and what they may cost."""

    price: Price
    max_cost_usd: float
    """For one purpose, over all interrupted runs since one last came to its end."""
    concurrency: int = 50
    batch: bool = False
    first_backoff: float = field(default=FIRST_BACKOFF_SECONDS, kw_only=True)
    poll_seconds: float = field(default=POLL_SECONDS, kw_only=True)


@dataclass(frozen=True, slots=True)
class _Once:
    """The asks without those that repeat an earlier one: two in flight would both be paid for."""

    asks: Iterable[Ask]

    def __iter__(self) -> Iterator[Ask]:
        seen: set[Key] = set()
        for ask in self.asks:
            if ask.key not in seen:
                seen.add(ask.key)
                yield ask


def ask_all(
    asks: Iterable[Ask],
    client: Client,
    ledger: Path,
    terms: Terms,
    *,
    purpose: str,
    check: Check,
    accepted: str,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Asks what the ledger does not settle; returns how every ask ended. The answers are the ledger's.

    `asks` may be gone over several times and all have `purpose`. `check` says why a text is no answer, `accepted` is
    the state of one that is. Raises StopRun (a LabelError) when the run stopped early: everything until then is kept.
    """
    if terms.batch and not hasattr(client, "submit"):
        raise LabelError(f"{client.model} is asked at a service without batches. Set labels.batch to false.")
    once = _Once(asks)
    with Ledger(ledger) as book:
        budget = Budget(terms.max_cost_usd, book.spent(purpose, client.model))
        records = Records(book, client.model, terms.price, budget, check, accepted, progress)
        if book.open_batches(purpose, client.model):
            finish_batches(
                cast(BatchClient, client), records, purpose=purpose, poll_seconds=terms.poll_seconds
            )
        if terms.batch:
            tally = run_batches(once, cast(BatchClient, client), records, poll_seconds=terms.poll_seconds)
        else:
            pace = Pace(terms.first_backoff)
            tally = run_asks(once, client, records, concurrency=terms.concurrency, pace=pace)
        book.done(purpose, client.model)
    return tally
