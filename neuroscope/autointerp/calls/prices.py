"""What calls cost: a table of prices as data, and a budget that is never overdrawn."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from neuroscope.autointerp.calls.ask import Ask, Usage
from neuroscope.errors import LabelError

MILLION = 1_000_000
ENVELOPE_TOKENS = 2_000
"""Input tokens that a service may add to a prompt: its own words around the system text and the schema."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cache_write: float
    cache_read: float
    batch: float = 0.5
    """A batch costs this share."""

    def of(self, usage: Usage, *, batch: bool = False) -> float:
        """Dollars of a call."""
        dollars = (
            usage.input * self.input
            + usage.output * self.output
            + usage.cache_write * self.cache_write
            + usage.cache_read * self.cache_read
        ) / MILLION
        return dollars * (self.batch if batch else 1.0)

    def at_most(self, ask: Ask, max_tokens: int, *, batch: bool = False) -> float:
        """Dollars that a call cannot exceed: a token is a byte at least."""
        size = sum(len(text.encode()) for text in (ask.system, ask.user, json.dumps(ask.schema)))
        dearest = max(self.input, self.cache_write)
        return self.of(Usage(output=max_tokens), batch=batch) + (
            (size + ENVELOPE_TOKENS) * dearest / MILLION * (self.batch if batch else 1.0)
        )


@cache
def table() -> dict[str, Any]:
    """models.json: prices and habits of models, by name without the date at its end."""
    text = resources.files("neuroscope.autointerp.calls").joinpath("models.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def family(model: str) -> str:
    """`claude-haiku-4-5` of `claude-haiku-4-5-20251001`."""
    return re.sub(r"(-\d{8}|-latest)$", "", model)


def price_of(model: str, input: float | None = None, output: float | None = None) -> Price:
    """The price of a model: the one given (labels.prices), else the table's.

    Raises LabelError for a model of unknown price: without one no limit could be kept.
    """
    if input is not None and output is not None:
        return Price(input, output, cache_write=1.25 * input, cache_read=input)
    known = table()["models"].get(family(model))
    if known is None:
        raise LabelError(
            f"The price of {model} is not known, so labels.max_cost_usd could not be kept. Set labels.prices.input and "
            "labels.prices.output in config.yaml, in US dollars per million tokens (0 for a model of your own). "
            f"Known: {', '.join(sorted(table()['models']))}."
        )
    return Price(**known["price"], batch=table()["batch"])


class Budget:
    """Dollars spent and dollars that calls in flight may still cost. Threads share it."""

    def __init__(self, limit: float, spent: float = 0.0) -> None:
        self.limit, self.spent, self.reserved = limit, spent, 0.0
        self._lock = threading.Lock()

    def reserve(self, dollars: float) -> bool:
        """Sets aside what a call may cost; False when that could pass the limit."""
        with self._lock:
            if self.spent + self.reserved + dollars > self.limit:
                return False
            self.reserved += dollars
            return True

    def settle(self, reserved: float, spent: float) -> None:
        """Replaces what was set aside by what it came to."""
        with self._lock:
            self.reserved = max(0.0, self.reserved - reserved)
            self.spent += spent

    def exhausted(self) -> str:
        """What to tell when a call does not fit any more."""
        return (
            f"Stopped before passing labels.max_cost_usd: ${self.spent:.2f} of ${self.limit:.2f} are spent and the "
            "next call could pass it. Every answer so far is kept. Raise labels.max_cost_usd (--max-cost) and run this "
            "again: it goes on where it stopped."
        )
