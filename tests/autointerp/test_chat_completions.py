"""A model behind an OpenAI-compatible address answers the same asks as Claude."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.completions import FakeCompletions, completion

from autointerp.asking import asks, check
from neuroscope.autointerp.calls.ask import StopRun
from neuroscope.autointerp.calls.chat_completions import ChatCompletions
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.prices import Price
from neuroscope.autointerp.calls.records import Tally
from neuroscope.autointerp.calls.session import Terms, ask_all
from neuroscope.errors import LabelError

PRICE = Price(1.0, 2.0, 1.25, 1.0)


def answer(body: dict[str, Any]) -> str:
    return json.dumps({"word": body["messages"][1]["content"]})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCompletions]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MY_KEY", "sk-secretsecret")
    with FakeCompletions(answer) as served:
        yield served


def run(service: FakeCompletions, ledger: Path, count: int = 3) -> Tally:
    client = ChatCompletions("tiny", service.url, key_variable="MY_KEY", timeout=10)
    terms = Terms(PRICE, 10, concurrency=1, first_backoff=0.002)
    return ask_all(asks(count), client, ledger, terms, purpose="label", check=check, accepted="labelled")


def test_asks_are_answered_and_paid_by_what_was_used(service: FakeCompletions, tmp_path: Path) -> None:
    tally = run(service, tmp_path / "ledger.jsonl")
    assert tally.states == {"labelled": 3}
    assert tally.spent == pytest.approx(3 * (70 + 2 * 10 + 30) / 1e6)
    body, headers = service.bodies[0], service.headers[0]
    assert service.paths[0] == "/v1/chat/completions"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("tiny", 0, 20)
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["word"]
    assert headers["authorization"] == "Bearer sk-secretsecret"


def test_a_server_without_a_key_is_sent_none(
    service: FakeCompletions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY")
    run(service, tmp_path / "ledger.jsonl", 1)
    assert "authorization" not in service.headers[0]


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (503, "busy", {}),
        (429, "slow", {"Retry-After": "0.01"}),
        (200, "<html>", {}),
        (200, {"choices": []}, {}),
    ],
)
def test_what_is_no_completion_is_asked_again(
    service: FakeCompletions, tmp_path: Path, status: int, body: Any, headers: dict[str, str]
) -> None:
    service.script.append((status, body, headers))
    tally = run(service, tmp_path / "ledger.jsonl")
    assert (tally.states, tally.retries) == ({"labelled": 3}, 1)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (completion('{"wo', "length"), "truncated"),
        (completion("", "content_filter"), "refused"),
        (completion(None, refusal="No."), "refused"),
    ],
)
def test_refusals_and_cut_answers_are_states(
    service: FakeCompletions, tmp_path: Path, body: Any, state: str
) -> None:
    service.script.append((200, body, {}))
    assert run(service, tmp_path / "ledger.jsonl").states == {"labelled": 2, state: 1}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, "bad key sk-secretsecret", r"401: bad key \.\.\.\).*Set MY_KEY"),
        (404, "no such model", r"Set labels.base_url and labels.model"),
        (429, {"error": {"code": "insufficient_quota"}}, "Add credit"),
    ],
)
def test_what_no_later_call_can_mend_stops_the_run(
    service: FakeCompletions, tmp_path: Path, status: int, body: Any, words: str
) -> None:
    service.script.append((status, body, {}))
    with pytest.raises(StopRun, match=words) as stopped:
        run(service, tmp_path / "ledger.jsonl")
    assert "secretsecret" not in str(stopped.value)
    assert run(service, tmp_path / "ledger.jsonl").states == {"labelled": 3}


def test_a_redirect_does_not_carry_the_key_away(service: FakeCompletions, tmp_path: Path) -> None:
    with FakeCompletions(answer) as elsewhere:
        service.script.append((307, "", {"Location": f"{elsewhere.url}/chat/completions"}))
        service.script.append((302, "", {"Location": f"{elsewhere.url}/chat/completions"}))
        assert run(service, tmp_path / "ledger.jsonl").states == {"failed": 2, "labelled": 1}
        assert not elsewhere.bodies


def test_a_service_that_is_not_there_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from neuroscope.autointerp.calls import runner

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(runner, "MAX_TRIES", 1)
    client = ChatCompletions("tiny", "http://127.0.0.1:9/v1", key_variable="NO_SUCH_KEY")
    terms = Terms(PRICE, 10, concurrency=1)
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(StopRun, match="20 calls in a row got no reply, the last: no connection"):
        ask_all(asks(30), client, path, terms, purpose="label", check=check, accepted="labelled")
    assert Ledger(path).of(asks(1)[0].key, "tiny") == [], "no ask is to blame for it"


def test_what_cannot_be_sent_as_a_key_is_told_before_anything_is_asked(
    service: FakeCompletions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret\n")
    with pytest.raises(LabelError, match="Set MY_KEY to the key alone"):
        run(service, tmp_path / "ledger.jsonl")
    assert not service.bodies


def test_more_cached_tokens_than_tokens_do_not_make_a_call_cheaper_than_free(
    service: FakeCompletions, tmp_path: Path
) -> None:
    usage = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 50}}
    service.script.append((200, {**completion('{"word": "number 0"}'), "usage": usage}, {}))
    run(service, tmp_path / "ledger.jsonl", 1)
    assert Ledger(tmp_path / "ledger.jsonl").of(asks(1)[0].key, "tiny")[0].usage.input == 0
