"""Prices are data, a model of unknown price is not asked, and a reservation is never too small."""

from __future__ import annotations

import pytest
from fakes.claude import FakeClaude, Says

from autointerp.asking import asks
from neuroscope.autointerp.calls.ask import Usage
from neuroscope.autointerp.calls.prices import Budget, Price, price_of, table
from neuroscope.errors import LabelError


def test_a_call_costs_what_its_tokens_cost() -> None:
    haiku = price_of("claude-haiku-4-5-20251001")
    assert haiku.of(Usage(input=1_000_000)) == 1.0
    assert haiku.of(Usage(output=1_000_000)) == 5.0
    assert haiku.of(Usage(cache_write=1_000_000)) == 1.25
    assert haiku.of(Usage(cache_read=1_000_000)) == pytest.approx(0.1)
    assert haiku.of(Usage(input=2_000_000, output=1_000_000), batch=True) == 3.5


def test_the_new_haiku_costs_a_tenth() -> None:
    old, new = price_of("claude-haiku-4-5"), price_of("claude-haiku-5-5")
    assert (new.input, new.output) == pytest.approx((old.input / 10, old.output / 10))


def test_a_model_of_unknown_price_is_not_guessed() -> None:
    with pytest.raises(
        LabelError, match=r"The price of claude-haiku-4-5-mini is not known.*labels.prices.input"
    ):
        price_of("claude-haiku-4-5-mini")
    own = price_of("my-model", 0.0, 0.0)
    assert own.of(Usage(10**9, 10**9, 10**9, 10**9)) == 0.0


def test_the_table_is_whole() -> None:
    for model, known in table()["models"].items():
        price = Price(**known["price"])
        assert 0 < price.cache_read < price.input <= price.cache_write < price.output, model
        assert known["thinking"] in ("off", "on", "always")


def test_no_call_costs_more_than_was_set_aside_for_it() -> None:
    price = price_of("claude-haiku-4-5")
    for ask in asks(3, words="déjà vu 漢字 😀" * 50):
        size = len(ask.user.encode()) + len(ask.system.encode())
        assert price.of(Usage(cache_write=size + 500, output=20)) < price.at_most(ask, 20)
        assert price.at_most(ask, 20, batch=True) == pytest.approx(price.at_most(ask, 20) / 2)


def test_a_budget_counts_what_is_in_flight() -> None:
    budget = Budget(1.0)
    assert budget.reserve(0.6)
    assert not budget.reserve(0.6)
    budget.settle(0.6, 0.1)
    assert budget.reserve(0.6)
    assert (budget.spent, budget.reserved) == (0.1, 0.6)


def test_the_fake_charges_as_the_service_does(claude: FakeClaude) -> None:
    body = {"system": [{"text": "s" * 400}], "messages": [{"content": "u" * 40}], "model": "m"}
    first, second = (claude.message(body, Says("x" * 40))["usage"] for _ in range(2))
    assert (first["cache_creation_input_tokens"], first["cache_read_input_tokens"]) == (100, 0)
    assert (second["cache_creation_input_tokens"], second["cache_read_input_tokens"]) == (0, 100)
