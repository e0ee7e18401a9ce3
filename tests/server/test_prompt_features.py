"""`"neuroscope": {"prompt_features": true}`: the features stream gets the prompt's tokens too, for whoever asks."""

from __future__ import annotations

import json
import socket
from typing import Any

import numpy as np
import pytest
from scripted import ALWAYS_ON, LAYER, Acts, acts_of, stats
from serving import Event, EventStream, Server, http, wait_until

from neuroscope.ranking import Ranking
from neuroscope.server.stream import Entry, FeatureStream, ReadPrompt
from neuroscope.server.views import EventWriter, View
from neuroscope.steps import EncodedToken, PromptCell

ASKED = {"neuroscope": {"prompt_features": True}}


def ask(server: Server, text: str, *, path: str = "chat/completions", **more: Any) -> str:
    """The id of the answer."""
    body = {"prompt": text} if path == "completions" else {"messages": [{"role": "user", "content": text}]}
    response = http.post(f"{server.chat_url}/v1/{path}", json={**body, **more}, timeout=60)
    assert response.status_code == 200, response.text
    line = response.text.partition("\n")[0].removeprefix("data: ")
    return str(json.loads(line)["id"])


def events_of(server: Server, completion_id: str, query: str = "") -> list[Event]:
    """The events of an answer, looked at afterwards."""
    path = f"/v1/features/stream?completion_id={completion_id}{query}"
    with EventStream(server.features_port, path) as stream:
        return [event for event in stream.until("generation_complete") if event.name != "gap"]


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_prompts_tokens_come_before_the_answers(server: Server, path: str, stream: bool) -> None:
    found = events_of(server, ask(server, "one two  three", path=path, stream=stream, **ASKED))
    assert [event.name for event in found] == [
        "prompt_activation",
        *["feature_activation"] * 4,
        "generation_complete",
    ]
    assert set(found[0].data) == {"completion_id", "layer", "tokens"}
    assert found[0].data["layer"] == LAYER
    assert {event.data["completion_id"] for event in found} == {found[0].data["completion_id"]}
    tokens = found[0].data["tokens"]
    assert "".join(token["token"] for token in tokens) == "one two  three"
    assert tokens[1] == {
        "token": " two",
        "token_id": 1,
        "position": 1,
        "content": True,
        "l0": 3,
        "fvu": 0.25,
        "top_features": [
            {"index": 5, "label": "label of 5", "activation": 5.0, "surprise": pytest.approx(3, abs=1e-5)},
            {
                "index": 21,
                "label": "label of 21",
                "activation": 2.5,
                "surprise": pytest.approx(0.5, abs=1e-5),
            },
        ],
        "filtered_count": 1,
    }
    assert [token["content"] for token in tokens] == [False, True, True]


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"neuroscope": None},
        {"neuroscope": {}},
        {"neuroscope": {"prompt_features": None}},
        {"neuroscope": {"prompt_features": False}},
    ],
)
def test_they_come_for_those_who_ask_alone(server: Server, own: dict[str, Any]) -> None:
    names = {event.name for event in events_of(server, ask(server, "one two", **own))}
    assert names == {"feature_activation", "generation_complete"}


@pytest.mark.parametrize(
    ("own", "param", "code", "words"),
    [
        ([], "neuroscope", "invalid_value", "'neuroscope' is a list of 0; it must be an object"),
        (True, "neuroscope", "invalid_value", "it must be an object"),
        ({"prompt_features": 1}, "neuroscope.prompt_features", "invalid_value", "true or false"),
        ({"prompt_features": "true"}, "neuroscope.prompt_features", "invalid_value", "true or false"),
        ({"promptFeatures": True}, "neuroscope.promptFeatures", "unknown_parameter", "has the key"),
        ({"prompt_features": True, "x" * 5000: 1}, "neuroscope." + "x" * 89, "unknown_parameter", "has the"),
    ],
    ids=lambda value: repr(value)[:20],
)
@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_what_it_does_not_know_is_refused_by_name(
    server: Server, path: str, own: Any, param: str, code: str, words: str
) -> None:
    body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "neuroscope": own}
    response = http.post(f"{server.chat_url}/v1/{path}", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert words in error["message"]
    assert len(error["message"]) < 400


def test_a_long_prompt_is_an_event_for_each_of_its_cells(server: Server) -> None:
    text = " ".join(f"w{n}" for n in range(130))
    found = events_of(server, ask(server, text, max_tokens=1, **ASKED))
    cells = [event.data["tokens"] for event in found if event.name == "prompt_activation"]
    assert [len(tokens) for tokens in cells] == [64, 64, 2]
    tokens = [token for cell in cells for token in cell]
    assert [token["position"] for token in tokens] == list(range(130))
    assert "".join(token["token"] for token in tokens) == text
    first = next(event for event in found if event.name == "feature_activation")
    assert first.data["position"] == 130


def test_they_come_while_the_prompt_runs(server: Server, stream: EventStream) -> None:
    """The client leaves after the first of three cells: the others, and the answer, never come."""
    text = "[prefill=9] " + " ".join(f"w{n}" for n in range(130))
    body = json.dumps({"messages": [{"role": "user", "content": text}], **ASKED}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head.encode() + body)
        (first,) = stream.take(1)
        assert (first.name, len(first.data["tokens"])) == ("prompt_activation", 64)
    (last,) = stream.take(1)
    assert last.name == "generation_complete"
    assert last.data["finish_reason"] == "cancelled"
    server.wait_idle()


def test_each_subscriber_sees_them_in_its_own_way(server: Server) -> None:
    answer = ask(server, "a b", **ASKED)

    def indices(query: str) -> list[list[int]]:
        tokens = events_of(server, answer, query)[0].data["tokens"]
        return [[feature["index"] for feature in token["top_features"]] for token in tokens]

    assert indices("&filter=none") == [[ALWAYS_ON, 4, 20], [ALWAYS_ON, 5, 21]]
    assert indices("&top_k=1") == [[4], [5]]
    assert indices("&features=21") == [[], [21]]
    ids = [[event.id for event in events_of(server, answer, query)] for query in ("", "&top_k=1")]
    assert ids[0] == ids[1]


def test_aligned_with_its_producer_a_token_has_the_position_before(server: Server) -> None:
    """Over the line between two cells too; before the first token there is nothing."""
    answer = ask(server, " ".join(["w"] * 70), max_tokens=1, **ASKED)
    found = [events_of(server, answer, f"&filter=none{more}") for more in ("", "&align=producer")]
    own, producer = (
        [token for event in events if event.name == "prompt_activation" for token in event.data["tokens"]]
        for events in found
    )
    for key in ("top_features", "l0", "filtered_count"):
        assert [token[key] for token in producer[1:]] == [token[key] for token in own[:-1]]
    assert (producer[0]["top_features"], producer[0]["l0"]) == ([], None)
    assert {token["fvu"] for token in producer} == {None}
    assert [token["position"] for token in producer] == list(range(70))


def test_a_subscriber_that_reconnects_gets_them_again(server: Server, stream: EventStream) -> None:
    ask(server, "one", **ASKED)
    seen = stream.until("generation_complete")
    assert seen[0].name == "prompt_activation"
    epoch, _, sequence = str(seen[0].id).partition("-")
    before = f"{epoch}-{int(sequence) - 1}"
    with EventStream(server.features_port, headers={"Last-Event-ID": before}) as again:
        assert again.until("generation_complete") == seen


def test_a_failure_after_the_prompt_is_told_after_it(server: Server, stream: EventStream) -> None:
    body = {"messages": [{"role": "user", "content": "[fail=0] a"}], **ASKED}
    assert http.post(f"{server.chat_url}/v1/chat/completions", json=body).status_code == 500
    assert [event.name for event in stream.until("generation_error")] == [
        "prompt_activation",
        "generation_error",
    ]
    wait_until(lambda: server.get("/readyz").status_code == 200, what="readiness")


# --- without a process ---


def cell_of(count: int) -> PromptCell:
    tokens = [EncodedToken(n, "x", True, acts_of(n), float("nan")) for n in range(count)]  # type: ignore[arg-type]
    return PromptCell(0, tuple(tokens), None)


def test_written_events_are_kept_within_a_number_of_bytes() -> None:
    stream = FeatureStream(64)
    writer = EventWriter([f"{i}" for i in range(32)], stats(), stream, kept_bytes=50_000)
    view = View(Ranking())
    entries = [Entry(n, ReadPrompt("c", LAYER, cell_of(64))) for n in range(1, 11)]
    sizes = {len(writer.write(entry, view)) for entry in entries}
    assert min(sizes) > 10_000
    assert 0 < writer._bytes == sum(map(len, writer._written.values())) <= 50_000
    assert writer.write(entries[-1], view) is writer.write(entries[-1], view)
    assert len(writer.write(Entry(11, ReadPrompt("c", LAYER, cell_of(640))), view)) > 50_000
    assert writer._bytes == 0, "what is too large to be kept is written all the same"


def test_a_number_that_json_has_not_is_null() -> None:
    stream = FeatureStream(64)
    writer = EventWriter([f"{i}" for i in range(32)], None, stream)
    empty = Acts(np.array([], np.int32), np.array([], np.float32))
    cell = PromptCell(0, (EncodedToken(1, "x", False, empty, float("nan")),), None)  # type: ignore[arg-type]
    block = writer.write(Entry(1, ReadPrompt("c", LAYER, cell)), View(Ranking()))
    data = json.loads(block.decode().partition("data: ")[2])
    assert data["tokens"][0]["fvu"] is None
    assert data["tokens"][0]["l0"] == 0
