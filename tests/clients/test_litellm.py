"""LiteLLM's `openai/` provider, which aider and others use, against the real server."""

from __future__ import annotations

import agreed
import pytest
from running import Heard, Servers, hear, python


@pytest.fixture(scope="module")
def heard(servers: Servers) -> Heard:
    return hear(servers, python("litellm_program.py", "litellm"))


def test_text_reason_and_usage_are_the_same_however_it_asks(heard: Heard) -> None:
    agreed.answers(heard, "whole", "streamed", "awhole", "astreamed")
    agreed.a_limit_cuts(heard)
    assert heard["text completion"] == [agreed.WORDS, agreed.USAGE]


def test_log_probabilities_come_with_bytes(heard: Heard) -> None:
    assert [bytes(entry) for entry in heard["logprobs"]] == [b"one", b" two", b" three"]


def test_the_real_model_obeys_seed_stop_and_system(heard: Heard) -> None:
    agreed.one_seed_is_one_text(heard)
    agreed.a_stop_string_cuts(heard)
    agreed.a_system_prompt_is_read(heard)


def test_errors_are_told_apart(heard: Heard) -> None:
    agreed.errors(heard, codes=False)  # it hands them on as kinds of its own
    agreed.a_late_failure_is_told(heard)
    kinds = {case: heard[case]["kind"] for case in ("wrong key", "wrong model", "too long", "tools")}
    assert kinds == {
        "wrong key": "AuthenticationError",
        "wrong model": "NotFoundError",
        "too long": "ContextWindowExceededError",
        "tools": "BadRequestError",
    }


def test_leaving_a_stream_ends_the_answer(heard: Heard) -> None:
    agreed.leaving_ends_the_answer(heard)
