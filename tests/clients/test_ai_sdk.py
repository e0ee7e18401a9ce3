"""The AI SDK with `@ai-sdk/openai-compatible` against the real server, in Node.js."""

from __future__ import annotations

import agreed
import pytest
from running import Heard, Servers, hear, node


@pytest.fixture(scope="module")
def heard(servers: Servers) -> Heard:
    return hear(servers, node("ai-sdk.mjs"))


def test_text_reason_and_usage_are_the_same_however_it_asks(heard: Heard) -> None:
    agreed.answers(heard, "whole", "streamed")
    agreed.a_limit_cuts(heard)


def test_a_completion_model_gets_the_conversation_as_the_sdk_writes_it(heard: Heard) -> None:
    whole, streamed = heard["completions"]
    assert whole == streamed
    assert whole == {"text": "user:\none two three\n\nassistant:", "reason": "stop", "usage": [5, 5, 10]}


def test_the_real_model_obeys_seed_stop_and_system(heard: Heard) -> None:
    agreed.one_seed_is_one_text(heard)
    agreed.a_stop_string_cuts(heard)
    agreed.a_system_prompt_is_read(heard)


def test_errors_are_told_apart(heard: Heard) -> None:
    agreed.errors(heard)
    agreed.a_late_failure_is_told(heard)


def test_leaving_a_stream_ends_the_answer(heard: Heard) -> None:
    agreed.leaving_ends_the_answer(heard)
