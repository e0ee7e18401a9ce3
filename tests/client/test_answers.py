"""An answer and its features put together: in order, each token once, and what never came is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from raw_server import OPENING, RawServer, Step
from serving import Server, serving

from neuroscope.client import Client, Event, Listener
from neuroscope.errors import NoServerError, ServerError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), serve={"heartbeat_s": 0.2}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(port=server.port, features_port=server.features_port) as client:
        yield client


def ask(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


def tokens(events: list[Event]) -> list[tuple[str, int | None, str]]:
    return [
        (event.name, event.data["token_index"], event.data["token"])
        for event in events
        if event.name in ("feature_activation", "unseen")
    ]


def test_every_token_has_its_features_and_the_texts_are_the_answer(client: Client) -> None:
    answer = Listener(client, top_k=1).answer(ask("one two three"), max_tokens=9)
    events = list(answer)
    assert tokens(events) == [
        ("feature_activation", n, text) for n, text in enumerate(["one", " two", " three", ""])
    ]
    assert [len(event.data["top_features"]) for event in events[:3]] == [1, 1, 1]
    assert events[-1].name == "generation_complete"
    assert (answer.text, answer.finish_reason) == ("one two three", "stop")
    assert {event.data["completion_id"] for event in events} == {answer.completion_id}


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("[chars]é😀 猫x", {}),
        ("[chars]say STOP now", {"stop": ["STOP"]}),
        ("[chars]say STO", {"stop": ["STOP"]}),
        ("a b c", {"max_tokens": 2}),
    ],
    ids=["characters of many tokens", "a stop string", "half a stop string", "cut"],
)
def test_text_that_is_held_back_keeps_its_tokens_in_order(
    client: Client, words: str, fields: dict[str, Any]
) -> None:
    answer = Listener(client).answer(ask(words), **fields)
    events = tokens(list(answer))
    assert [index for _, index, _ in events] == list(range(len(events)))
    assert {name for name, _, _ in events} == {"feature_activation"}
    assert "".join(text for _, _, text in events) == answer.text
    assert answer.text


def test_answers_of_one_conversation_and_of_others_do_not_mix(client: Client) -> None:
    listener = Listener(client)
    list(client.chat(ask("somebody else")))
    first = list(listener.answer(ask("mine")))
    list(client.chat(ask("somebody else again")))
    second = list(listener.answer(ask("mine too")))
    assert [text for _, _, text in tokens(first)] == ["mine", ""]
    assert [text for _, _, text in tokens(second)] == ["mine", " too", ""]


def test_a_prompt_comes_before_its_answer_while_the_model_is_still_busy(client: Client) -> None:
    prompt = "word " * 70
    answer = iter(
        Listener(client).answer(
            ask(f"[prefill=1]{prompt}"), neuroscope={"prompt_features": True}, max_tokens=2
        )
    )
    first = next(answer)
    assert (first.name, len(first.data["tokens"])) == ("prompt_activation", 64)
    assert [event.name for event in answer] == [
        "prompt_activation",
        "feature_activation",
        "feature_activation",
        "generation_complete",
    ]


def test_a_failure_comes_after_what_was_said(client: Client) -> None:
    answer = Listener(client).answer(ask("[fail=2]a b c"))
    events: list[Event] = []
    with pytest.raises(ServerError, match="The model failed"):
        events.extend(answer)
    assert answer.text == "a b"


def test_a_stream_that_cannot_begin_is_told_at_once(server: Server) -> None:
    with Client(port=server.port, features_port=1) as client, pytest.raises(NoServerError):
        Listener(client)
    with (
        Client(port=server.port, features_port=server.features_port) as client,
        pytest.raises(ServerError, match="'features' is 'x'"),
    ):
        Listener(client, features="x")


def test_what_others_ask_between_two_questions_is_not_kept(client: Client) -> None:
    listener = Listener(client)
    for _ in range(3):
        list(client.chat(ask("somebody else")))
    assert listener._inbox.empty()
    assert [text for _, _, text in tokens(list(listener.answer(ask("mine"))))] == ["mine", ""]


# --- streams that lose something


def chat_bytes(*tokens_of_chunks: tuple[list[int], str]) -> bytes:
    blocks = [{"id": "c1", "choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    blocks += [
        {"id": "c1", "choices": [{"delta": {"content": text}}], "neuroscope": {"token_indices": indices}}
        for indices, text in tokens_of_chunks
    ]
    blocks += [{"id": "c1", "choices": [{"delta": {}, "finish_reason": "stop"}]}]
    return OPENING + b"".join(b"data: %b\n\n" % json.dumps(b).encode() for b in blocks) + b"data: [DONE]\n\n"


def stream_bytes(*events: tuple[str, dict[str, Any]]) -> bytes:
    blocks = (
        f"event: {name}\nid: e-{n}\ndata: {json.dumps(data)}\n\n".encode()
        for n, (name, data) in enumerate(events, 1)
    )
    return OPENING + b"id: e-0\n\n" + b"".join(blocks)


def token(index: int, text: str, completion_id: str = "c1") -> tuple[str, dict[str, Any]]:
    return "feature_activation", {"completion_id": completion_id, "token_index": index, "token": text}


END = ("generation_complete", {"completion_id": "c1"})


@contextmanager
def answering(chat: bytes, *streams: list[Step]) -> Iterator[list[Event]]:
    """The events of the answer `chat` beside features streams that come one after the other.

    The first has its events when the question is there.
    """
    one = RawServer([chat])
    (first, *more), *later = streams
    assert isinstance(first, bytes)
    opening, end, events = first.partition(b"id: e-0\n\n")
    with (
        one,
        RawServer([opening + end, one.asked, events, *more], *later) as other,
        Client(port=one.port, features_port=other.port) as client,
    ):
        yield list(Listener(client).answer(ask("a")))


def test_a_token_without_features_is_said_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = chat_bytes(([0], "a"), ([1, 2], " b"), ([3], " c"))
    gap = ("gap", {"missed": 2, "reason": "late"})
    stream = stream_bytes(token(0, "a"), token(0, "x", "c2"), gap, token(3, " c"), END)
    with answering(chat, [stream, 5.0]) as events:
        assert [event.name for event in events] == [
            "feature_activation",
            "gap",
            "unseen",
            "unseen",
            "feature_activation",
            "generation_complete",
        ]
        assert tokens(events) == [
            ("feature_activation", 0, "a"),
            ("unseen", 1, ""),
            ("unseen", 2, " b"),
            ("feature_activation", 3, " c"),
        ]


def test_a_silent_stream_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscope.client.joining.WAIT_S", 0.3)
    chat = chat_bytes(*(([n], f"{n}") for n in range(200)))
    with answering(chat, [stream_bytes(token(0, "0")), 60.0]) as events:
        assert tokens(events) == [
            ("feature_activation", 0, "0"),
            *(("unseen", n, f"{n}") for n in range(1, 200)),
        ]


def test_a_stream_that_is_cut_off_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscope.client.asking.RETRY_S", 0.05)
    chat = chat_bytes(([0], "a"), ([1], "b"))
    rest = OPENING + b"id: e-1\n\n" + stream_bytes(token(1, "b"), END).removeprefix(OPENING)
    with answering(chat, [stream_bytes(token(0, "a"))], [rest, 5.0]) as events:
        assert [event.name for event in events] == [
            "feature_activation",
            "lost",
            "feature_activation",
            "generation_complete",
        ]


def test_a_stream_that_is_refused_later_leaves_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscope.client.asking.RETRY_S", 0.01)
    chat = chat_bytes(([0], "a"), ([1], "b"))
    with answering(chat, [stream_bytes(token(0, "a"))], [b"HTTP/1.1 404 No\r\n\r\n"]) as events:
        assert [event.name for event in events] == ["feature_activation", "lost", "lost", "unseen"]
        assert events[2].data["retry_in_s"] is None


def test_a_chat_server_that_names_no_tokens_is_shown_without_features() -> None:
    block = json.dumps({"id": "c1", "choices": [{"delta": {"content": "hello"}}]}).encode()
    chat = OPENING + b"data: %b\n\ndata: [DONE]\n\n" % block
    with answering(chat, [stream_bytes(END), 5.0]) as events:
        assert tokens(events) == [("unseen", None, "hello")]
