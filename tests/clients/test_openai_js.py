"""The `openai` package of npm against the real server, in Node.js."""

from __future__ import annotations

import agreed
import pytest
from running import Heard, Servers, hear, node


@pytest.fixture(scope="module")
def heard(servers: Servers) -> Heard:
    return hear(servers, node("openai.mjs"))


def test_text_reason_and_usage_are_the_same_however_it_asks(heard: Heard) -> None:
    agreed.answers(heard, "whole", "streamed", "helper")
    agreed.a_limit_cuts(heard)
    assert heard["completion"] == {"text": agreed.WORDS, "usage": agreed.USAGE}
    assert heard["heartbeats"].strip() == "at last"


def test_models_are_listed_and_found(heard: Heard) -> None:
    assert heard["models"] == ["scripted/model"]
    assert heard["model"] == "scripted/model"


def test_log_probabilities_come_with_bytes(heard: Heard) -> None:
    assert heard["logprobs"] == [[list(word), 1] for word in (b"one", b" two", b" three")]


def test_the_real_model_obeys_seed_stop_and_system(heard: Heard) -> None:
    agreed.one_seed_is_one_text(heard)
    agreed.a_stop_string_cuts(heard)
    agreed.a_system_prompt_is_read(heard)


def test_errors_are_told_apart(heard: Heard) -> None:
    agreed.errors(heard)
    agreed.a_late_failure_is_told(heard)
    kinds = {case: heard[case]["kind"] for case in ("wrong key", "wrong model", "too long", "responses")}
    assert kinds == {
        "wrong key": "AuthenticationError",
        "wrong model": "NotFoundError",
        "too long": "BadRequestError",
        "responses": "NotFoundError",
    }
    assert heard["too many"]["param"] == "n"
    assert heard["wrong model"]["request"].startswith("req_")
    assert "POST /v1/chat/completions" in heard["responses"]["message"]


def test_leaving_a_stream_ends_the_answer(heard: Heard) -> None:
    agreed.leaving_ends_the_answer(heard, times=2)
