"""Many asks by batch: half the price, any order, what expired is asked again, nothing is paid twice."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from fakes.claude import NO_CREDIT, UNKNOWN_KEY, Batched, FakeClaude, Says, Status

from autointerp.asking import MODEL, PRICE, answer, asks, check, run, states
from neuroscope.autointerp.calls import batches
from neuroscope.autointerp.calls.ask import StopRun
from neuroscope.autointerp.calls.batches import ROUNDS, run_batches
from neuroscope.autointerp.calls.claude import Claude
from neuroscope.autointerp.calls.ledger import MAX_INVALID, Ledger
from neuroscope.autointerp.calls.prices import Budget
from neuroscope.autointerp.calls.records import Records, Tally
from neuroscope.errors import LabelError


@pytest.fixture(autouse=True)
def _answers(claude: FakeClaude) -> None:
    claude.answer = answer


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def test_a_batch_costs_half_and_its_answers_find_their_asks(claude: FakeClaude, ledger: Path) -> None:
    claude.polls = 3
    tally = run(ledger, 30, batch=True)
    assert tally.states == {"labelled": 30}, "an answer to another ask would be invalid"
    assert (len(claude.batches), claude.paid_twice) == (1, {})
    calls = [Ledger(ledger).of(ask.key, MODEL)[0] for ask in asks(30)]
    assert [call.usd for call in calls] == pytest.approx([PRICE.of(call.usage) / 2 for call in calls])
    assert {call.batch for call in calls} == {"msgbatch_0"}
    assert run(ledger, 30, batch=True).calls == 0
    assert len(claude.batches) == 1


@pytest.mark.parametrize(
    "fault",
    [Batched("expired"), Batched("canceled"), Batched("errored"), Says("prose")],
    ids=lambda f: f.__class__.__name__,
)
def test_what_a_batch_left_out_is_in_the_next(
    claude: FakeClaude, ledger: Path, fault: Batched | Says
) -> None:
    claude.script.extend([fault, None, fault])
    assert run(ledger, 5, batch=True).states == {"labelled": 5}
    assert [len(batch["results"]) for batch in claude.batches.values()] == [5, 2]


def test_what_keeps_expiring_is_left_for_the_next_run(claude: FakeClaude, ledger: Path) -> None:
    claude.chance = lambda prompt, time: Batched("expired") if prompt == "number 2" else None
    assert run(ledger, 3, batch=True).states == {"labelled": 2, "failed": 1}
    assert len(claude.batches) == ROUNDS
    claude.chance = lambda prompt, time: None
    assert run(ledger, 3, batch=True).states == {"labelled": 3}


def test_a_wrong_request_is_not_handed_in_again(claude: FakeClaude, ledger: Path) -> None:
    claude.script.append(Batched("errored", "invalid_request_error"))
    assert run(ledger, 3, batch=True).states == {"labelled": 2, "failed": 1}
    assert len(claude.batches) == 1


def test_useless_answers_are_given_up_after_a_few(claude: FakeClaude, ledger: Path) -> None:
    claude.chance = lambda prompt, time: Says("prose") if prompt == "number 0" else None
    assert run(ledger, 2, batch=True).states == {"labelled": 1, "invalid": 1}
    assert claude.paid["number 0"] == MAX_INVALID


def test_a_batch_whose_answer_was_lost_is_found_and_not_handed_in_twice(
    claude: FakeClaude, ledger: Path
) -> None:
    claude.lose_next_batch_answer = True
    assert run(ledger, 4, batch=True).states == {"labelled": 4}
    assert (len(claude.batches), claude.paid_twice) == (1, {})


def test_another_batch_of_the_same_size_is_not_taken_for_ours(claude: FakeClaude, ledger: Path) -> None:
    run(ledger.with_name("other.jsonl"), asks(4, "other"), batch=True)
    claude.lose_next_batch_answer = True
    assert run(ledger, 4, batch=True).states == {"labelled": 4}
    assert (len(claude.batches), claude.paid_twice) == (2, {})


def in_batches(ledger: Path, count: int, *, size: int, limit: float) -> Tally:
    with Ledger(ledger) as book, closing(Claude(MODEL)) as client:
        budget = Budget(limit, book.spent("label", MODEL))
        records = Records(book, MODEL, PRICE, budget, check, "labelled", lambda tally: None)
        return run_batches(asks(count), client, records, size=size, poll_seconds=0.001)


def test_more_asks_than_a_batch_takes_make_several(claude: FakeClaude, ledger: Path) -> None:
    assert in_batches(ledger, 10, size=4, limit=10).states == {"labelled": 10}
    assert [len(batch["results"]) for batch in claude.batches.values()] == [4, 4, 2]


def test_a_batch_is_no_longer_than_the_service_takes(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 4 * batches.REQUEST_BYTES)
    long = asks(1, "word " * batches.BATCH_BYTES)  # it can only be handed in alone
    assert run(ledger, [*asks(5), *long], batch=True).states == {"labelled": 6}
    assert [len(batch["results"]) for batch in claude.batches.values()] == [3, 2, 1]


def test_a_batch_that_is_refused_for_itself_is_not_to_be_handed_in_later(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeClaude, "refuse_batches", Status(413, "request_too_large", "too large"))
    with pytest.raises(StopRun, match=r"too large\. Run this again without batches \(--no-batch\)"):
        run(ledger, 3, batch=True)


def test_the_budget_holds_for_batches(claude: FakeClaude, ledger: Path) -> None:
    dearest = PRICE.at_most(asks(20)[-1], 20, batch=True)
    limit = 3.5 * dearest
    tally = in_batches(ledger, 20, size=100, limit=limit)
    assert tally.states == {"labelled": 20}
    assert max(len(batch["results"]) for batch in claude.batches.values()) == 3
    assert tally.spent <= limit
    with pytest.raises(StopRun, match=r"labels.max_cost_usd"):
        in_batches(ledger.with_name("poor.jsonl"), 20, size=100, limit=dearest / 2)
    assert claude.paid_twice == {}


def test_a_refused_batch_stops_the_run_and_leaves_nothing_open(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeClaude, "refuse_batches", NO_CREDIT)
    with pytest.raises(StopRun, match="Add credit"):
        run(ledger, 3, batch=True)
    assert Ledger(ledger).open_batches("label", MODEL) == []
    monkeypatch.setattr(FakeClaude, "refuse_batches", UNKNOWN_KEY)
    with pytest.raises(StopRun, match="ANTHROPIC_API_KEY is not accepted"):
        run(ledger, 3, batch=True)
    assert states(ledger, 3) == [None, None, None]
    assert not claude.paid


def test_a_service_without_batches_says_so(ledger: Path) -> None:
    from neuroscope.autointerp.calls.chat_completions import ChatCompletions
    from neuroscope.autointerp.calls.session import Terms, ask_all

    client = ChatCompletions("m", "http://127.0.0.1:9/v1", key_variable="NO_SUCH_KEY")
    with pytest.raises(LabelError, match=r"Set labels.batch to false"):
        ask_all([], client, ledger, Terms(PRICE, 1, batch=True), purpose="label", check=check, accepted="x")
