"""Texts that clients are known to have lost, doubled or broken, said by a real model token by token, in both modes."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asking import Answer, ask, in_both_modes, refused_in_both_modes
from serving import EventStream, Server

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
CODE = "def f(x):\n    if x:\n\treturn  1\n\n\n    return 2"


def told(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"say[{text}]end"}], **more}


def say(server: Server, text: str, **more: Any) -> Answer:
    return in_both_modes(server, told(text, **more))


@pytest.mark.parametrize(
    "text",
    [
        "👋",
        FAMILY,
        f"a{FAMILY}b{FAMILY}",
        "漢字かな交じり文、한국어",
        "é e\u0301 ñ ﷽ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
        "  two spaces",
        "\n\n    indented",
        CODE,
        "trailing spaces  \n\n",
        "a\u2028b\u0085c\x00d",
        "data: [DONE]\n\ndata: {}\n\n",
        "\ufffd",
    ],
)
def test_the_text_arrives_as_it_was_said(saying: Server, text: str) -> None:
    answer = say(saying, text)
    assert answer.text == text
    assert answer.reason == "stop"
    assert all("\ufffd" not in piece for piece in answer.pieces) or "\ufffd" in text


def test_a_raw_prompt_is_answered_alike(saying: Server) -> None:
    body = {"prompt": f"say[  {FAMILY}\n{CODE}]end", "max_tokens": 100}
    assert in_both_modes(saying, body, "/v1/completions").text == f"  {FAMILY}\n{CODE}"


def test_a_character_comes_whole_with_its_last_token(saying: Server) -> None:
    pieces = say(saying, "a👋漢b").pieces
    assert pieces == ("a", "👋", "漢", "b")


def test_the_events_alone_hold_the_same_text(saying: Server) -> None:
    """The incremental path: what each token adds, joined, and each event before its chunk."""
    text = f"{FAMILY} 漢字\n    indented"
    with EventStream(saying.features_port) as stream:
        next(stream.blocks())
        answer = ask(saying, told(text)).json()
        *tokens, complete = stream.until("generation_complete")
    assert "".join(event.data["token"] for event in tokens) == text
    assert complete.data["total_tokens"] == answer["usage"]["completion_tokens"]


def test_a_character_that_the_limit_cuts_is_one_replacement_character(saying: Server) -> None:
    answer = say(saying, "a👋", max_tokens=3)
    assert answer.text == "a\ufffd"
    assert answer.reason == "length"


@pytest.mark.parametrize(
    ("text", "stop", "kept", "reason"),
    [
        ("one, two, three", ", three", "one, two", "stop"),  # over several tokens
        ("one two three", ["three", "two"], "one ", "stop"),  # the one that comes first
        ("stop at once", "stop", "", "stop"),
        (f"a{FAMILY}b", FAMILY, "a", "stop"),  # inside characters of four bytes each
        ("a\n\nb", "\n\n", "a", "stop"),
        ("END is near: EN", "END.", "END is near: EN", "stop"),  # a beginning at the very end is text
        ("aaab", "aab", "a", "stop"),  # a match that begins inside a failed one
        ("nothing of it", ["xyz"], "nothing of it", "stop"),
        ("nothing of it", None, "nothing of it", "stop"),
        ("nothing of it", [], "nothing of it", "stop"),
    ],
)
def test_nothing_is_lost_or_doubled_around_a_stop_string(
    saying: Server, text: str, stop: Any, kept: str, reason: str
) -> None:
    answer = say(saying, text, stop=stop)
    assert (answer.text, answer.reason) == (kept, reason)


@pytest.mark.parametrize("stop", ["", [""], ["a", ""]])
def test_an_empty_stop_string_is_refused(saying: Server, stop: Any) -> None:
    assert refused_in_both_modes(saying, told("x", stop=stop))["param"] == "stop"


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_counts_tokens(saying: Server, name: str, limit: int) -> None:
    answer = say(saying, "wxyz", **{name: limit})
    assert answer.text == "wxyz"[:limit]
    assert answer.reason == "length"
    assert answer.usage["completion_tokens"] == limit


def test_eight_parallel_questions_get_their_own_answers(saying: Server) -> None:
    texts = [f"answer {number} {FAMILY}" for number in range(8)]
    with ThreadPoolExecutor(len(texts)) as pool:
        assert [answer.text for answer in pool.map(lambda text: say(saying, text), texts)] == texts


def test_leaving_in_the_middle_leaves_the_next_answer_whole(saying: Server) -> None:
    """At the third token of a stream, and before anything has come, twenty times."""
    for number in range(20):
        body = json.dumps(told("w" * 150, stream=number % 2 == 0))
        with socket.create_connection(("127.0.0.1", saying.port), timeout=60) as connection:
            head = (
                "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            read = b""
            while number % 4 == 0 and read.count(b"token_indices") < 3:
                read += connection.recv(4096)
        answer = ask(saying, told(f"next {number}")).json()
        assert answer["choices"][0]["message"]["content"] == f"next {number}"
