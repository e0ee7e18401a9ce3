"""What messages may be, and how their roles are folded for a template."""

from __future__ import annotations

from typing import Any

import pytest

from neuroscope.errors import PromptError
from neuroscope.models.conversation import SystemTurns, Turn, clean_text, fold, read_messages


def turns(*pairs: tuple[str, str]) -> list[Turn]:
    return [Turn(role, text) for role, text in pairs]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("  hi\n", "  hi\n"),
        ([], ""),
        ([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}], "a b"),
    ],
)
def test_content_is_null_a_string_or_text_parts_that_concatenate(content: Any, text: str) -> None:
    assert read_messages([{"role": "user", "content": content}]) == [Turn("user", text)]


def test_developer_is_read_as_system() -> None:
    assert read_messages([{"role": "developer", "content": "x"}]) == [Turn("system", "x")]


def test_missing_content_of_an_assistant_is_empty() -> None:
    assert read_messages([{"role": "assistant", "tool_calls": None}]) == [Turn("assistant", "")]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages is a list of 0; it must be a list"),
        ("hi", "messages is 'hi'; it must be a list"),
        (5, "messages is 5; it must be a list"),
        ([1], r"messages\[0\] is 1; it must be an object"),
        ([{}], r"messages\[0\].role is absent; it must be one of system, developer, user, assistant"),
        (
            [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}],
            r"messages\[1\].role is 'tool'",
        ),
        (
            [{"role": "user", "content": 5}],
            r"messages\[0\].content is 5; it must be a string, null or a list",
        ),
        ([{"role": "user", "contents": "a"}], r"messages\[0\].content is absent; it must be a string, null"),
        ([{"role": "system"}], r"messages\[0\].content is absent"),
        (
            [{"role": "user", "content": {"type": "text"}}],
            "is an object of 1; it must be a string, null or a list",
        ),
        ([{"role": "user", "content": ["a"]}], r"content\[0\] is 'a'; this model reads only"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "type 'image_url'"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], r"content\[0\].text is null"),
        ([{"role": None, "content": "a"}], r"messages\[0\].role is null; it must be one of system"),
        ([{"role": "r" * 100_000}], r"messages\[0\].role is 'r{60}'\.\.\.; it must be one of system"),
    ],
)
def test_anything_else_is_refused_by_name(messages: Any, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        read_messages(messages)


def test_lone_surrogates_are_replaced_and_other_characters_kept() -> None:
    assert clean_text("a\ud800b\U0001f600\x00") == "a\ufffdb\U0001f600\x00"
    assert read_messages([{"role": "user", "content": "\udfff"}]) == [Turn("user", "\ufffd")]


@pytest.mark.parametrize(
    ("given", "system", "folded"),
    [
        (turns(("system", "S"), ("user", "U")), "first", turns(("system", "S"), ("user", "U"))),
        (turns(("system", "S"), ("user", "U")), "never", turns(("user", "S\n\nU"))),
        (turns(("system", "S")), "never", turns(("user", "S"))),
        (turns(("system", "S")), "first", turns(("system", "S"))),
        (
            turns(("system", "S"), ("system", "T"), ("user", "U")),
            "first",
            turns(("system", "S\n\nT"), ("user", "U")),
        ),
        (turns(("system", "S"), ("system", "T"), ("user", "U")), "never", turns(("user", "S\n\nT\n\nU"))),
        (turns(("system", ""), ("user", "U")), "never", turns(("user", "U"))),
        (turns(("system", ""), ("user", "U")), "anywhere", turns(("system", ""), ("user", "U"))),
        (turns(("user", "U"), ("system", "S")), "first", turns(("user", "U\n\nS"))),
        (turns(("user", "U"), ("system", "S")), "anywhere", turns(("user", "U"), ("system", "S"))),
        (
            turns(("user", "U"), ("assistant", "A"), ("system", "S"), ("user", "V")),
            "never",
            turns(("user", "U"), ("assistant", "A"), ("user", "S\n\nV")),
        ),
        (turns(("user", "U"), ("user", "V")), "first", turns(("user", "U\n\nV"))),
        (turns(("assistant", "A"), ("assistant", "B")), "first", turns(("assistant", "A\n\nB"))),
        (turns(("system", "S"), ("assistant", "A")), "never", turns(("user", "S"), ("assistant", "A"))),
    ],
)
def test_roles_fold_into_what_the_template_takes(
    given: list[Turn], system: SystemTurns, folded: list[Turn]
) -> None:
    assert fold(given, system) == folded
