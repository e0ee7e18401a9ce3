"""POST /v1/diff against texts whose features one can compute, and against the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from documented import operation, validate
from made_recordings import document
from scripted import ALWAYS_ON
from scripted_results import write_results
from serving import Server, http, serving

DIFF = operation("features", "post", "/v1/diff")
EVERYTHING = {"filter": "none", "top_k": 1000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("diff")
    write_results(folder / "results/tiny")
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}) as running:
        yield running
    assert "Traceback" not in running.output


def ask(server: Server, a: Any, b: Any, **more: Any) -> httpx.Response:
    return http.post(f"{server.features_url}/v1/diff", json={"a": a, "b": b, **more})


def diff(server: Server, a: Any, b: Any, **more: Any) -> dict[str, Any]:
    answer = ask(server, a, b, **more)
    assert answer.status_code == 200, answer.text
    validate("features", DIFF.responses[200]["content"]["application/json"]["schema"], answer.json())
    found: dict[str, Any] = answer.json()
    return found


def own_recording(server: Server, content: str) -> dict[str, Any]:
    completion_id = server.chat(content, neuroscope={"prompt_features": True}).json()["id"]
    saved = http.post(f"{server.features_url}/v1/sessions", json={"completion_id": completion_id}).json()
    found: dict[str, Any] = server.get(f"/v1/sessions/{saved['id']}").json()
    return found


def test_two_texts_are_read_by_the_model_and_compared(server: Server) -> None:
    """Token n has feature 3 at 9.0, feature 4 + n % 8 at 5.0 and feature 20 + n % 8 at 2.5."""
    found = diff(server, {"text": "one two three"}, {"text": "one two"}, **EVERYTHING)
    assert [token["token"] for token in found["a"]["tokens"]] == ["one", " two", " three"]
    assert found["runs"] == [[0, 0, 2]]
    rows = {row["index"]: (row["state"], row["change"]) for row in found["features"]}
    assert rows == {6: ("vanishes", -5.0), 22: ("vanishes", -2.5), ALWAYS_ON: ("weaker", -9.0)}
    assert found["pairs"] == []
    assert found["about"]["6"]["label"] == "ÉTÉ, the summer"
    assert found["ranking"] == {"filter": "none", "threshold": 0.5, "top_k": 1000, "min_activation": 0}


def test_what_is_asked_filters_and_cuts(server: Server) -> None:
    texts = {"text": "one two three"}, {"text": "one two"}
    assert [row["index"] for row in diff(server, *texts, filter="none", top_k=1)["features"]] == [ALWAYS_ON]
    hidden = diff(server, *texts, filter="frequency", threshold=0.05)
    assert hidden["filtered_count"] >= 1
    assert {row["index"] for row in diff(server, *texts, **EVERYTHING, min_activation=4)["features"]} == {
        3,
        6,
    }


def test_recordings_sessions_and_conversations_are_sides_too(server: Server) -> None:
    one = own_recording(server, "a b c")
    by_id, whole = {"session": one["id"]}, {"recording": one}
    assert diff(server, by_id, whole, **EVERYTHING)["features"] == []
    found = diff(server, by_id, {"messages": [{"role": "user", "content": "a b c"}]}, **EVERYTHING)
    assert [token["place"] for token in found["a"]["tokens"]] == ["prompt"] * 3 + ["answer"] * 4
    assert found["a"]["tokens"][-1]["content"] is False, "the end of turn"
    assert found["b"]["title"] == "a b c"
    other = diff(server, whole, by_id, **EVERYTHING)
    assert other["runs"] == [[0, 0, 7]]


def test_a_recording_of_another_sae_is_refused(server: Server) -> None:
    other = document()
    other["fingerprint"]["sae_sha256"] = "f" * 64
    answer = ask(server, {"recording": other}, {"text": "a b"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "other_features")
    assert "SAE file ffffffffffffffff and 1111111111111111" in error["message"]


@pytest.mark.parametrize(
    ("side", "status", "param", "code"),
    [
        (None, 400, "b", "invalid_value"),
        (5, 400, "b", "invalid_value"),
        ({}, 400, "b", "invalid_value"),
        ({"text": "a", "session": "b"}, 400, "b", "invalid_value"),
        ({"file": "/etc/passwd"}, 400, "file", "unknown_parameter"),
        ({"text": 5}, 400, "text", "invalid_value"),
        ({"session": 5}, 400, "session", "invalid_value"),
        ({"session": "../../etc/passwd"}, 404, None, "session_not_found"),
        ({"session": "nowhere"}, 404, None, "session_not_found"),
        ({"messages": []}, 400, "b.messages", "invalid_prompt"),
        ({"messages": "hi"}, 400, "b.messages", "invalid_prompt"),
        ({"recording": {}}, 400, "b.recording", "invalid_recording"),
        ({"recording": []}, 400, "b.recording", "invalid_recording"),
        ({"recording": "x"}, 400, "b.recording", "invalid_recording"),
        ({"recording": {**document(), "tokens": []}}, 400, "b.recording", "invalid_recording"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_side_is_named(server: Server, side: Any, status: int, param: str | None, code: str) -> None:
    answer = ask(server, {"text": "a"}, side)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), answer.text
    assert len(error["message"]) < 500


@pytest.mark.parametrize(
    "more",
    [
        {"filter": "best"},
        {"filter": 5},
        {"threshold": 2},
        {"top_k": 0},
        {"top_k": 1001},
        {"min_activation": -1},
    ],
    ids=str,
)
def test_a_wrong_setting_is_named(server: Server, more: dict[str, Any]) -> None:
    answer = ask(server, {"text": "a"}, {"text": "b"}, **more)
    assert answer.json()["error"]["param"] == next(iter(more))


def test_a_recording_of_many_thousand_tokens_is_compared_and_one_of_more_refused(server: Server) -> None:
    """Beyond the 1,000,000 bytes of other bodies, in a time in which nothing else waits."""
    long = document([(f" w{n}", dict.fromkeys(range(20), 1.0)) for n in range(4000)])
    assert 1_000_000 < len(json.dumps(long)) < 16_000_000
    found = diff(server, {"recording": long}, {"text": "a"}, **EVERYTHING)
    assert len(found["a"]["tokens"]) == 4000
    answer = ask(server, {"text": "x" * 16_000_000}, {"text": "a"})
    assert answer.status_code == 413


def test_the_real_engine_reads_what_encode_reads(saying: Server) -> None:
    texts = "the cat sat on the mat", "the cat sat on the hat"
    found = diff(saying, {"text": texts[0]}, {"text": texts[1]}, **EVERYTHING)
    for name, text in zip("ab", texts, strict=True):
        encoded = http.post(
            f"{saying.features_url}/v1/features/encode?filter=none&top_k=1000", json={"text": text}
        ).json()["tokens"]
        assert [token["token_id"] for token in found[name]["tokens"]] == [
            token["token_id"] for token in encoded
        ]
        for row in found["features"]:
            total = sum(
                feature["activation"]
                for token in encoded
                if token["content"]
                for feature in token["top_features"]
                if feature["index"] == row["index"]
            )
            assert row[name]["sum"] == pytest.approx(total, rel=1e-5)
    assert found["runs"][0][:2] == [0, 0]
    assert [pair for pair in found["pairs"] if pair["a"] < found["runs"][0][2]] == [], (
        "before they part, the same tokens have the same features"
    )
    assert diff(saying, {"text": texts[0]}, {"text": texts[0]}, **EVERYTHING)["features"] == []


def test_a_real_answer_is_recorded_as_it_is_encoded(saying: Server) -> None:
    """The recording of a prompt, and the same conversation read anew, are the same features."""
    messages = [{"role": "user", "content": "say[yes]end"}]
    body = {"messages": messages, "neuroscope": {"prompt_features": True}, "max_tokens": 8}
    completion_id = http.post(f"{saying.chat_url}/v1/chat/completions", json=body).json()["id"]
    saved = http.post(
        f"{saying.features_url}/v1/sessions", json={"completion_id": completion_id, "messages": messages}
    ).json()
    found = diff(saying, {"session": saved["id"]}, {"messages": messages}, **EVERYTHING)
    (start, *_rest) = found["runs"]
    assert start[:2] == [0, 0]
    assert start[2] >= len([t for t in found["a"]["tokens"] if t["place"] == "prompt"]) - 4
    assert [pair for pair in found["pairs"] if pair["a"] < start[2]] == []
