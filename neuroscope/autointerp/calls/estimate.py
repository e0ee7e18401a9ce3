"""What asking will cost, told before anything is paid."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass

from neuroscope.autointerp.calls.ask import Ask, Client, Usage
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.prices import Price

SAMPLE = 20
CHARACTERS_PER_TOKEN = 3.0
"""Of quoted corpus text in JSON; plain English has more."""
SECONDS_PER_CALL = 3.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The work that is left, and its price."""

    calls: int
    settled: int
    """Asks that the ledger already answers."""
    input_tokens: int
    output_tokens: int
    usd: float
    usd_batch: float
    seconds: float
    counted_by: str
    """Where the input tokens come from."""


def estimate(
    asks: Iterable[Ask],
    client: Client | None,
    ledger: Ledger,
    *,
    model: str,
    price: Price,
    output_tokens: int,
    concurrency: int,
) -> Estimate:
    """Calls, tokens, dollars and seconds for what is not settled. `output_tokens` is what an answer usually takes.

    Tokens are counted by the service on a sample of asks, else estimated from characters. No call is paid.
    """
    calls = settled = characters = 0
    sample: list[tuple[Ask, int]] = []
    chance = random.Random(0)
    for ask in asks:
        if ledger.settled(ask.key, model) is not None:
            settled += 1
            continue
        size = len(ask.system) + len(ask.user) + len(json.dumps(ask.schema))
        calls, characters = calls + 1, characters + size
        if len(sample) < SAMPLE:
            sample.append((ask, size))
        elif (place := chance.randrange(calls)) < SAMPLE:
            sample[place] = (ask, size)
    per_character, how = _tokens_per_character(sample, client)
    read = round(characters * per_character)
    written = calls * output_tokens
    usage = Usage(input=read, output=written)
    return Estimate(
        calls,
        settled,
        read,
        written,
        price.of(usage),
        price.of(usage, batch=True),
        SECONDS_PER_CALL * calls / max(1, min(concurrency, calls)),
        how,
    )


def _tokens_per_character(sample: list[tuple[Ask, int]], client: Client | None) -> tuple[float, str]:
    counted: list[tuple[int, int]] = []
    for ask, size in sample if client is not None else []:
        tokens = client.count(ask) if client is not None else None
        if tokens is None:
            break
        counted.append((tokens, size))
    if not counted:
        return 1 / CHARACTERS_PER_TOKEN, f"estimated: a token for {CHARACTERS_PER_TOKEN:g} characters"
    tokens, size = (sum(column) for column in zip(*counted, strict=True))
    return tokens / size, f"counted by the service on {len(counted)} prompts"
