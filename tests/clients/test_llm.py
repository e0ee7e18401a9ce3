"""Simon Willison's `llm` against the real server: chat and completion models, with and without streaming."""

from __future__ import annotations

import agreed
import pytest
from running import Heard, Servers, hear, python


@pytest.fixture(scope="module")
def heard(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    settings = {"LLM_USER_PATH": str(tmp_path_factory.mktemp("llm"))}
    return hear(servers, python("llm_program.py", "llm"), settings)


def test_text_and_usage_are_the_same_with_and_without_streaming(heard: Heard) -> None:
    prompt_tokens, answer_tokens, _ = agreed.USAGE
    for case in ("whole", "streamed"):
        assert heard[case] == {"text": agreed.WORDS, "usage": [prompt_tokens, answer_tokens]}
    assert heard["text model"] == [agreed.WORDS] * 2
    assert heard["limited"] == "one two"


def test_a_conversation_goes_on(heard: Heard) -> None:
    assert heard["continued"] == "and four"
    assert heard["continues"]


def test_the_real_model_obeys_seed_stop_and_system(heard: Heard) -> None:
    agreed.one_seed_is_one_text(heard)
    agreed.a_stop_string_cuts(heard)
    agreed.a_system_prompt_is_read(heard)


def test_errors_are_told_apart(heard: Heard) -> None:
    agreed.errors(heard, codes=False)  # it prints the sentence only
    agreed.a_late_failure_is_told(heard)
