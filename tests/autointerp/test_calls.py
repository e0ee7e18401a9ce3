"""Many asks at once, by the real SDK at a service on loopback that goes wrong as it is told."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.claude import (
    NO_CREDIT,
    OVERLOADED,
    RATE_LIMITED,
    SPEND_LIMIT,
    UNKNOWN_KEY,
    FakeClaude,
    Fault,
    Garbage,
    Reset,
    Says,
    Status,
    sometimes,
)

from autointerp.asking import MODEL, PRICE, answer, asks, run, states
from neuroscope.autointerp.calls import runner
from neuroscope.autointerp.calls.ask import StopRun, Usage, seconds_to_wait
from neuroscope.autointerp.calls.claude import Claude
from neuroscope.autointerp.calls.ledger import MAX_FAILED, MAX_INVALID, Call, Ledger
from neuroscope.errors import LabelError


@pytest.fixture(autouse=True)
def _answers(claude: FakeClaude) -> None:
    claude.answer = answer


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "labels/ledger.jsonl"


def test_every_ask_is_answered_and_paid_for_once(claude: FakeClaude, ledger: Path) -> None:
    tally = run(ledger, 20)
    assert tally.states == {"labelled": 20}
    assert states(ledger, 20) == ["labelled"] * 20
    assert (sum(claude.paid.values()), claude.paid_twice) == (20, {})
    again = run(ledger, 25)
    assert again.states == {"labelled": 25}
    assert again.calls == 5
    assert (sum(claude.paid.values()), claude.paid_twice) == (25, {})


@pytest.mark.parametrize("batch", [False, True], ids=["one by one", "batch"])
def test_a_question_that_is_asked_twice_is_paid_for_once(
    claude: FakeClaude, ledger: Path, batch: bool
) -> None:
    claude.latency = 0.01
    assert run(ledger, [*asks(3), *asks(3)], batch=batch).states == {"labelled": 3}
    assert claude.paid_twice == {}


def test_a_rate_limit_that_speaks_of_usage_limits_is_waited_for(claude: FakeClaude, ledger: Path) -> None:
    words = "You are near your usage limits; see also spend limits."
    claude.script.append(Status(429, "rate_limit_error", words, {"retry-after": "0.01"}))
    assert run(ledger, 2).states == {"labelled": 2}


def test_a_request_asks_for_a_schema_and_caches_the_instructions(claude: FakeClaude, ledger: Path) -> None:
    run(ledger, 1)
    (body,) = claude.bodies
    assert body["output_config"]["format"]["schema"]["required"] == ["word"]
    assert body["system"] == [{"type": "text", "text": "Say a word.", "cache_control": {"type": "ephemeral"}}]
    assert (body["model"], body["max_tokens"]) == (MODEL, 20)
    assert "thinking" not in body


def test_models_that_think_are_told_not_to_or_given_room(claude: FakeClaude, ledger: Path) -> None:
    run(ledger, 1, model="claude-haiku-5-5")
    run(ledger, 1, model="claude-opus-5-5")
    can_stop, always_thinks = claude.bodies
    assert can_stop["thinking"] == {"type": "disabled"}
    assert can_stop["max_tokens"] == 20
    assert "thinking" not in always_thinks
    assert always_thinks["max_tokens"] > 1000


def test_no_more_calls_are_in_flight_than_allowed(claude: FakeClaude, ledger: Path) -> None:
    claude.latency = 0.01
    run(ledger, 30, concurrency=7)
    assert 4 <= claude.most_at_once <= 7


@pytest.mark.parametrize(
    "fault",
    [OVERLOADED, Status(500), Status(503), Status(429, "rate_limit_error"), RATE_LIMITED, Reset(), Garbage()],
    ids=["overloaded", "error", "unavailable", "rate limit", "retry-after", "reset", "garbage"],
)
def test_a_call_without_a_reply_is_repeated(claude: FakeClaude, ledger: Path, fault: Fault) -> None:
    claude.script.extend([fault, fault])
    tally = run(ledger, 3, concurrency=1)
    assert tally.states == {"labelled": 3}
    assert tally.retries == 2
    assert claude.paid_twice == {}


def test_retry_after_stops_every_call_until_it_is_over(claude: FakeClaude, ledger: Path) -> None:
    pause = Status(429, "rate_limit_error", headers={"retry-after": "0.4"})
    claude.latency = 0.002
    claude.chance = lambda prompt, time: pause if prompt == "number 5" and time == 0 else None
    run(ledger, 40, concurrency=4)
    gaps = [later - earlier for earlier, later in zip(claude.times, claude.times[1:], strict=False)]
    assert max(gaps) > 0.3
    assert len(claude.times) == 41


def test_a_long_retry_after_is_honoured_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pace = runner.Pace()
    pace.pause_all(600)
    before = pace._resume_at - time.monotonic()
    pace.pause_all(1)
    assert 599 < before <= 600
    assert pace._resume_at - time.monotonic() > 599, "a shorter pause does not end a longer one"
    assert "a pause of 600 seconds" in caplog.text


def test_retry_after_is_read_in_its_three_forms() -> None:
    assert seconds_to_wait({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert seconds_to_wait({"retry-after": "90"}) == 90
    assert seconds_to_wait({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert seconds_to_wait({"retry-after": "soon"}) is None
    assert seconds_to_wait({}) is None


@pytest.mark.parametrize(
    ("says", "state"),
    [
        (Says("I would rather not.", "refusal"), "refused"),
        (Says('{"word": "num', "max_tokens"), "truncated"),
        (Says("", "model_context_window_exceeded"), "truncated"),
    ],
)
def test_a_refusal_or_a_cut_answer_is_a_state_and_not_asked_again(
    claude: FakeClaude, ledger: Path, says: Says, state: str
) -> None:
    claude.script.append(says)
    for _ in range(2):
        assert run(ledger, 3, concurrency=1).states == {"labelled": 2, state: 1}
    assert states(ledger, 3) == [state, "labelled", "labelled"]
    assert claude.paid_twice == {}


@pytest.mark.parametrize(
    "text",
    ["Certainly! A word is cat.", '{"word": "number 0"} {"word": "number 0"}', "[]", '{"wort": 1}', ""],
)
def test_a_useless_answer_is_asked_for_again(claude: FakeClaude, ledger: Path, text: str) -> None:
    claude.script.append(Says(text))
    tally = run(ledger, 1)
    assert tally.states == {"labelled": 1}
    first, second = Ledger(ledger).of(asks(1)[0].key, MODEL)
    assert (first.attempt, first.state, first.text) == (1, "invalid", text)
    assert (second.attempt, second.state) == (2, "labelled")
    assert first.usd > 0


def test_useless_answers_are_given_up_after_a_few(claude: FakeClaude, ledger: Path) -> None:
    claude.chance = lambda prompt, time: Says("prose") if prompt == "number 1" else None
    for _ in range(2):
        assert run(ledger, 2).states == {"labelled": 1, "invalid": 1}
    assert claude.paid == {"number 0": 1, "number 1": MAX_INVALID}


def test_what_got_no_reply_is_asked_again_by_the_next_runs_and_given_up_then(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_TRIES", 2)
    claude.chance = lambda prompt, time: OVERLOADED if prompt == "number 1" else None
    for attempt in range(MAX_FAILED + 1):
        assert run(ledger, 2).states == {"labelled": 1, "failed": 1}
        assert claude.asked["number 1"] == 2 * min(attempt + 1, MAX_FAILED)
    assert claude.paid_twice == {}


def test_what_failed_once_succeeds_in_the_next_run(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_TRIES", 1)
    claude.script.append(OVERLOADED)
    assert run(ledger, 2, concurrency=1).states == {"failed": 1, "labelled": 1}
    assert run(ledger, 2, concurrency=1).states == {"labelled": 2}
    assert states(ledger, 2) == ["labelled", "labelled"]


def test_a_request_that_is_refused_is_not_repeated(claude: FakeClaude, ledger: Path) -> None:
    claude.script.append(Status(400, "invalid_request_error", "prompt is too long"))
    assert run(ledger, 2, concurrency=1).states == {"failed": 1, "labelled": 1}
    assert sum(claude.asked.values()) == 2
    (call,) = Ledger(ledger).of(asks(1)[0].key, MODEL)
    assert call.reason == "status 400 (invalid_request_error): prompt is too long"
    assert call.text is None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (UNKNOWN_KEY, "ANTHROPIC_API_KEY is not accepted"),
        (NO_CREDIT, "Add credit or raise the limit"),
        (SPEND_LIMIT, "Add credit or raise the limit"),
        (Status(429, "rate_limit_error", "You have reached your usage limits"), "Add credit or raise"),
        (Status(402, "billing_error"), "Add credit or raise the limit"),
        (Status(403, "permission_error"), "Use a key of a workspace that may use claude-haiku"),
        (Status(404, "not_found_error"), "Choose another with --labeler"),
    ],
    ids=["key", "credit", "spend limit", "usage limit", "billing", "permission", "model"],
)
def test_what_no_later_call_can_mend_stops_the_run_and_keeps_what_was_answered(
    claude: FakeClaude, ledger: Path, fault: Status, words: str
) -> None:
    claude.chance = lambda prompt, time: fault if sum(claude.asked.values()) >= 10 else None
    with pytest.raises(StopRun, match=words):
        run(ledger, 1000, concurrency=4)
    assert states(ledger, 1000).count("labelled") == 10 == sum(claude.paid.values())
    assert sum(claude.asked.values()) <= 10 + 4, "calls in flight, and no more"
    claude.chance = lambda prompt, time: None
    assert run(ledger, 30).states == {"labelled": 30}
    assert claude.paid_twice == {}


def test_a_service_that_is_away_stops_the_run(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_TRIES", 2)
    claude.chance = lambda prompt, time: OVERLOADED if len(claude.paid) >= 5 else None
    with pytest.raises(
        StopRun, match=r"20 calls in a row got no reply, the last: status 529 \(overloaded_error\)"
    ):
        run(ledger, 500)
    claude.chance = lambda prompt, time: None
    assert run(ledger, 60).states == {"labelled": 60}
    assert claude.paid_twice == {}


def test_the_budget_is_never_passed_and_nothing_is_lost(claude: FakeClaude, ledger: Path) -> None:
    dearest = PRICE.at_most(asks(40)[-1], 20)
    run(ledger.with_name("whole.jsonl"), 40)
    whole = sum(PRICE.of(usage) for usage in used(ledger.with_name("whole.jsonl"), 40))
    claude.paid.clear()
    for share in (0.2, 0.5, 0.8):
        limit = dearest + share * whole
        with pytest.raises(StopRun, match=r"(?s)labels.max_cost_usd.*goes on where it stopped"):
            run(ledger, 40, limit=limit)
        spent = Ledger(ledger).spent("label", MODEL)
        assert limit - dearest < spent <= limit, "stopped when the next call could pass it, and no earlier"
        assert states(ledger, 40).count("labelled") == sum(claude.paid.values())
        assert spent == pytest.approx(sum(PRICE.of(usage) for usage in used(ledger, 40)))
    assert run(ledger, 40, limit=dearest + 1.1 * whole).states == {"labelled": 40}
    assert claude.paid_twice == {}
    assert Ledger(ledger).spent("label", MODEL) == 0, "the next set of labels starts at nothing"


def used(ledger: Path, count: int) -> list[Usage]:
    book = Ledger(ledger)
    return [call.usage for ask in asks(count) for call in book.of(ask.key, MODEL)]


def test_a_budget_of_nothing_buys_nothing(claude: FakeClaude, ledger: Path) -> None:
    with pytest.raises(StopRun, match=r"\$0.00 of \$0.00 are spent"):
        run(ledger, 3, limit=0)
    assert not claude.asked


def test_an_edited_prompt_is_asked_anew_and_another_model_too(claude: FakeClaude, ledger: Path) -> None:
    run(ledger, 3)
    edited = [replace(ask, user=f"the {ask.user}", content_hash="0" * 64) for ask in asks(3)]
    assert run(ledger, edited).calls == 3
    assert run(ledger, 3, model="claude-haiku-5-5").calls == 3
    assert run(ledger, 3).calls == 0


def test_a_third_of_faults_of_every_kind_leaves_every_ask_in_a_state(
    claude: FakeClaude, ledger: Path
) -> None:
    claude.chance = sometimes(0.3)
    tally = run(ledger, 150, concurrency=16)
    assert tally.ended == 150
    assert tally.states["labelled"] > 120
    assert set(tally.states) <= {"labelled", "refused", "truncated", "invalid", "failed"}
    assert None not in states(ledger, 150)
    again = run(ledger, 150)
    assert again.calls == 150 - tally.ended + tally.states["failed"]
    good = [json.loads(call.text or "")["word"] for call in last_calls(ledger) if call.state == "labelled"]
    assert all(word.startswith("number ") for word in good)


def last_calls(ledger: Path) -> list[Call]:
    book = Ledger(ledger)
    return [book.of(ask.key, MODEL)[-1] for ask in asks(150)]


def test_the_key_is_asked_for_before_any_work_and_written_nowhere(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude.script.append(Status(400, "invalid_request_error", "bad request with sk-secretsecret in it"))
    run(ledger, 2)
    assert b"secretsecret" not in ledger.read_bytes()
    assert b"bad request with ... in it" in ledger.read_bytes()
    claude.script.append(Status(403, "permission_error", "key sk-secretsecret may not"))
    with pytest.raises(StopRun) as stopped:
        run(ledger, asks(1, "another"))
    assert "secretsecret" not in str(stopped.value)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(LabelError, match=r"ANTHROPIC_API_KEY is not set, and claude-.* cannot be asked"):
        Claude(MODEL)


@pytest.mark.parametrize("away", [OVERLOADED, Status(400, "invalid_request_error", "no such parameter")])
def test_no_ask_is_given_up_for_what_befell_them_all(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch, away: Status
) -> None:
    monkeypatch.setattr(runner, "MAX_TRIES", 1)
    claude.chance = lambda prompt, time: away
    for _ in range(MAX_FAILED + 1):
        with pytest.raises(StopRun, match="20 calls in a row"):
            run(ledger, 100)
    claude.chance = lambda prompt, time: None
    assert run(ledger, 100).states == {"labelled": 100}


def test_a_service_that_turns_all_calls_down_is_not_said_to_be_away(claude: FakeClaude, ledger: Path) -> None:
    claude.chance = lambda prompt, time: Status(400, "invalid_request_error", "no such parameter")
    with pytest.raises(StopRun, match=r"turned down, the last: status 400 .*parameter.* Change what"):
        run(ledger, 100)


def test_asks_without_a_reply_keep_no_money_from_others(claude: FakeClaude, ledger: Path) -> None:
    claude.chance = lambda prompt, time: Status(400) if prompt < "number 2" else None
    dearest = PRICE.at_most(asks(19)[-1], 20)
    assert run(ledger, 19, limit=3 * dearest, concurrency=1).states == {"failed": 11, "labelled": 8}


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret", "sk-secret\r", "sk-\u201csecret\u201d"])
def test_what_cannot_be_sent_as_a_key_is_told_before_anything_is_asked(
    claude: FakeClaude, ledger: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with pytest.raises(LabelError, match="Set ANTHROPIC_API_KEY to the key alone") as told:
        run(ledger, 1)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "seconds", ["inf", "nan", "1e300", "-inf", "864000", "Fri, 31 Dec 99999 23:59:59 GMT"]
)
def test_a_time_to_wait_that_is_none_is_not_waited_for(
    claude: FakeClaude, ledger: Path, seconds: str
) -> None:
    assert not seconds_to_wait({"retry-after": seconds})
    claude.script.append(Status(429, "rate_limit_error", "slow down", {"retry-after": seconds}))
    assert run(ledger, 2).states == {"labelled": 2}
