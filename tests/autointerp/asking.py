"""Plain asks about numbers, and a fake Claude that answers them: for tests of the calls, not of what they are for."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from neuroscope.autointerp.calls.ask import Ask, Key
from neuroscope.autointerp.calls.claude import Claude
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.prices import price_of
from neuroscope.autointerp.calls.records import Tally
from neuroscope.autointerp.calls.session import Terms, ask_all

MODEL = "claude-haiku-4-5-20251001"
PRICE = price_of(MODEL)
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def asks(count: int, words: str = "number", max_tokens: int = 20) -> list[Ask]:
    return [_ask(number, f"{words} {number}", max_tokens) for number in range(count)]


def _ask(number: int, user: str, max_tokens: int) -> Ask:
    content_hash = hashlib.sha256(user.encode()).hexdigest()
    return Ask(number, "label", "Say a word.", user, SCHEMA, max_tokens, content_hash)


def answer(body: dict[str, Any]) -> str:
    """What FakeClaude says to these asks."""
    return json.dumps({"word": body["messages"][0]["content"]})


def check(key: Key, text: str) -> str | None:
    """A good answer repeats the number asked about."""
    try:
        word = json.loads(text)["word"]
    except (ValueError, KeyError, TypeError):
        return "no JSON object with a word"
    return None if str(word).endswith(f" {key[0]}") else f"about {word!r}"


def run(
    ledger: Path,
    count: int | list[Ask] = 6,
    *,
    limit: float = 10.0,
    concurrency: int = 4,
    batch: bool = False,
    model: str = MODEL,
) -> Tally:
    """Asks them at the service that ANTHROPIC_BASE_URL names, hurrying where the real thing waits."""
    terms = Terms(price_of(model), limit, concurrency, batch, first_backoff=0.002, poll_seconds=0.002)
    wanted = asks(count) if isinstance(count, int) else count
    with closing(Claude(model)) as client:
        return ask_all(wanted, client, ledger, terms, purpose="label", check=check, accepted="labelled")


def states(ledger: Path, count: int | list[Ask] = 6, model: str = MODEL) -> list[str | None]:
    """The state that each ask is left in."""
    book = Ledger(ledger)
    wanted = asks(count) if isinstance(count, int) else count
    calls = [book.of(ask.key, model) for ask in wanted]
    return [found[-1].state if found else None for found in calls]
