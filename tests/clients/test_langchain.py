"""`langchain-openai` against the real server: every way it asks, and what it hands on."""

from __future__ import annotations

import agreed
import pytest
from running import Heard, Servers, hear, python


@pytest.fixture(scope="module")
def heard(servers: Servers) -> Heard:
    return hear(servers, python("langchain_program.py", "langchain_openai"))


def test_text_reason_and_usage_are_the_same_however_it_asks(heard: Heard) -> None:
    agreed.answers(heard, "invoke", "stream", "astream")
    agreed.a_limit_cuts(heard)
    assert heard["batch"] == ["a b", "c d", "e f"]
    assert heard["text completion"] == "one two three"


def test_log_probabilities_come_with_bytes(heard: Heard) -> None:
    assert [bytes(entry["bytes"]) for entry in heard["logprobs"]] == [b"one", b" two", b" three"]


def test_the_real_model_obeys_seed_stop_and_system(heard: Heard) -> None:
    agreed.one_seed_is_one_text(heard)
    agreed.a_stop_string_cuts(heard)
    agreed.a_system_prompt_is_read(heard)


def test_errors_are_told_apart(heard: Heard) -> None:
    agreed.errors(heard)
    agreed.a_late_failure_is_told(heard)
    assert heard["too long"]["kind"] == "OpenAIContextOverflowError"
    assert heard["structured"]["status"] == 400
    assert heard["structured"]["param"] == "response_format"


def test_leaving_a_stream_ends_the_answer(heard: Heard) -> None:
    agreed.leaving_ends_the_answer(heard)
