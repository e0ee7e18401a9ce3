"""What every client must be told alike, whatever its own words for it are.

A program's case is `{"text", "reason", "usage": [prompt, completion, total]}` for an answer and
`{"status", "code", "message"}` for an error, as far as its client hands these on.
"""

from __future__ import annotations

from running import Heard

WORDS = "one two three"
USAGE = [3, 3, 6]
LONG_ANSWER = 100
"""Tokens of the answer that is given up half way."""


def answers(heard: Heard, *cases: str, usage: bool = True) -> None:
    """Each of these is the answer in three words."""
    for case in cases:
        assert heard[case]["text"] == WORDS, case
        assert heard[case]["reason"] == "stop", case
        if usage:
            assert heard[case]["usage"] == USAGE, case


def a_limit_cuts(heard: Heard, case: str = "limited") -> None:
    assert heard[case]["text"] == "one two"
    assert heard[case]["reason"] == "length"


def one_seed_is_one_text(heard: Heard) -> None:
    """Of the real model: once whole, once streamed, and another seed's."""
    whole, streamed, other = heard["seeds"]
    assert whole == streamed
    assert whole
    assert other != whole


def a_stop_string_cuts(heard: Heard) -> None:
    """`stopped` is [the whole text, the stop string, the text up to it whole, the same streamed]."""
    text, stop, *cut = heard["stopped"]
    assert stop in text
    assert cut == [text[: text.index(stop)]] * 2


def a_system_prompt_is_read(heard: Heard) -> None:
    """`systems` are the prompt tokens without one and with one."""
    without, with_one = heard["systems"]
    assert with_one > without > 0


def errors(heard: Heard, *, codes: bool = True) -> None:
    """The key, the model and the context are each told apart, with the server's own sentence."""
    for case, status, code, words in [
        ("wrong key", 401, "invalid_api_key", "key"),
        ("wrong model", 404, "model_not_found", "is not served here; 'scripted/model' is"),
        ("too long", 400, "context_length_exceeded", "context length is 256 tokens"),
        ("too many", 400, "unsupported_parameter", "'n' must be 1"),
        ("tools", 400, "unsupported_parameter", "Tools are not supported"),
    ]:
        if case in heard.cases:
            error = heard[case]
            assert error["status"] == status, case
            assert words in error["message"], case
            if codes:
                assert error["code"] == code, case
    assert {"wrong key", "wrong model", "too long"} <= heard.cases.keys()


def a_late_failure_is_told(heard: Heard) -> None:
    """After the first word: the stream raises, and does not end as if all was said."""
    assert "The model failed on this request (RuntimeError)" in heard["late failure"]["message"]


def leaving_ends_the_answer(heard: Heard, times: int = 1) -> None:
    """So many answers were given up by the client after some tokens, and the model stopped writing them."""
    cancelled = [end for end in heard.ends.values() if end.get("finish_reason") == "cancelled"]
    assert len(cancelled) == times
    assert all(end["total_tokens"] < LONG_ANSWER for end in cancelled)
