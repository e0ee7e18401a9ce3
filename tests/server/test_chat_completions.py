"""Chat completions as any HTTP client sees them: both modes, models, what they share."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2 as httpx
import pytest
from serving import Server, http

HELLO = {"messages": [{"role": "user", "content": "one two three"}]}


def post(server: Server, body: Any, path: str = "/v1/chat/completions") -> httpx.Response:
    return http.post(f"{server.chat_url}{path}", json=body, timeout=30)


def chunks_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The chunks of a streamed answer; the stream must end with [DONE]."""
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: ") for block in blocks), (
        "a block without data ends openai-python's stream"
    )
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])


def test_chat_completions_openai_compat(server: Server) -> None:
    response = post(server, {"model": "scripted/model", **HELLO, "temperature": 0.7, "user": "somebody"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    answer = response.json()
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", answer["id"])
    assert answer["object"] == "chat.completion"
    assert isinstance(answer["created"], int)
    assert answer["model"] == "scripted/model"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "one two three", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_chat_completions_streaming(server: Server) -> None:
    response = post(server, {**HELLO, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "no-cache" in response.headers["cache-control"]
    assert response.text.endswith("data: [DONE]\n\n")
    chunks = chunks_of(response)
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert [c["choices"][0]["delta"].get("role") for c in chunks] == ["assistant", None, None, None, None]
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, None, None, "stop"]
    assert [c.get("neuroscope") for c in chunks] == [
        None,
        {"token_indices": [0]},
        {"token_indices": [1]},
        {"token_indices": [2]},
        {"token_indices": [3]},  # the end of the turn
    ]
    assert text_of(chunks) == "one two three"
    assert all("usage" not in chunk for chunk in chunks)


def test_models_list(server: Server) -> None:
    listed = http.get(f"{server.chat_url}/v1/models").json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert model["id"] == "scripted/model"
    assert model["object"] == "model"
    assert isinstance(model["created"], int)
    assert model["owned_by"] == "neuroscope"


def test_a_model_is_found_by_an_id_with_slashes_and_by_its_alias(server: Server) -> None:
    for name in ("scripted/model", "scripted"):
        assert http.get(f"{server.chat_url}/v1/models/{name}").json()["id"] == "scripted/model"
        assert post(server, {"model": name, **HELLO}).json()["model"] == "scripted/model"


def test_another_model_is_not_found(server: Server) -> None:
    for response in (
        http.get(f"{server.chat_url}/v1/models/gpt-4o"),
        post(server, {"model": "gpt-4o", **HELLO}),
        post(server, {"model": "gpt-4o", "stream": True, **HELLO}),
    ):
        assert response.status_code == 404
        error = response.json()["error"]
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"
        assert "'gpt-4o' is not served here; 'scripted/model' is" in error["message"]


def test_usage_comes_in_an_extra_last_chunk_when_asked_for(server: Server) -> None:
    chunks = chunks_of(post(server, {**HELLO, "stream": True, "stream_options": {"include_usage": True}}))
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 5
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == post(server, HELLO).json()["usage"]


def test_both_modes_give_the_same_text_and_reason(server: Server) -> None:
    for content, limit in [
        ("one two", None),
        ("  indented   code\n\n    kept ", None),
        ("cut after two tokens", 2),
        ("[chars]né 👩‍👩‍👧 漢字", None),
        ("[chars]cut inside 漢", 13),
    ]:
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": limit}
        whole = post(server, body).json()["choices"][0]
        chunks = chunks_of(post(server, {**body, "stream": True}))
        assert text_of(chunks) == whole["message"]["content"]
        assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]


def test_characters_split_over_tokens_arrive_whole_with_all_their_tokens(server: Server) -> None:
    chunks = chunks_of(
        post(server, {"messages": [{"role": "user", "content": "[chars]aé👋"}], "stream": True})
    )
    pieces = [(c["choices"][0]["delta"].get("content"), c.get("neuroscope")) for c in chunks]
    assert pieces[1:] == [
        ("a", {"token_indices": [0]}),
        ("é", {"token_indices": [1, 2]}),
        ("👋", {"token_indices": [3, 4, 5, 6]}),
        (None, {"token_indices": [7]}),
    ]


def test_line_separators_do_not_break_the_stream(server: Server) -> None:
    text = "a\u2028b\u2029c\x85d"
    chunks = chunks_of(post(server, {"messages": [{"role": "user", "content": text}], "stream": True}))
    assert text_of(chunks) == text
    raw = post(server, {"messages": [{"role": "user", "content": text}], "stream": True}).text
    assert not any(character in raw for character in "\u2028\u2029\x85")


def test_logprobs_carry_bytes_and_every_number_is_finite(server: Server) -> None:
    body = {**HELLO, "logprobs": True, "top_logprobs": 2}
    content = post(server, body).json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    assert content[0] == {
        "token": "one",
        "logprob": -0.25,
        "bytes": [111, 110, 101],
        "top_logprobs": [
            {"token": "one", "logprob": -0.25, "bytes": [111, 110, 101]},
            {"token": "\ufffd", "logprob": -9999.0, "bytes": [240]},
        ],
    }
    chunks = chunks_of(post(server, {**body, "stream": True}))
    streamed = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [entry for logprobs in streamed for entry in logprobs["content"]] == content


def test_logprobs_without_alternatives(server: Server) -> None:
    content = post(server, {**HELLO, "logprobs": True}).json()["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in content] == [[], [], []]


def test_max_completion_tokens_wins_over_max_tokens(server: Server) -> None:
    choice = post(server, {**HELLO, "max_tokens": 1, "max_completion_tokens": 2}).json()["choices"][0]
    assert choice["message"]["content"] == "one two"
    assert choice["finish_reason"] == "length"


def test_null_means_absent_everywhere(server: Server) -> None:
    names = [
        *("model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p"),
        *("stop", "seed", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty", "logit_bias"),
        *("n", "user", "tools", "tool_choice", "response_format", "modalities", "functions", "function_call"),
    ]
    response = post(server, {**HELLO, **dict.fromkeys(names)})
    assert response.json()["choices"][0]["message"]["content"] == "one two three"


def test_unknown_fields_are_ignored(server: Server) -> None:
    assert post(server, {**HELLO, "chat_id": "x", "store": True, "metadata": {"a": 1}}).status_code == 200


def test_the_values_clients_are_known_to_send_are_taken(server: Server) -> None:
    for field, value in [
        *[("temperature", v) for v in (0, 1e-9, 2)],
        *[("top_p", v) for v in (0, 1)],
        *[("stop", v) for v in ("x", ["x", "y"], [])],
        *[("seed", v) for v in (0, -1, 2**63 - 1)],
        ("logit_bias", {"5": -100, "6": 1.5}),
        ("n", 1),
        ("response_format", {"type": "text"}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "auto"),
        ("modalities", ["text"]),
        ("stream_options", {}),
    ]:
        assert post(server, {**HELLO, field: value}).status_code == 200, (field, value)


@pytest.mark.parametrize(
    "content", [None, "", [], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]]
)
def test_content_may_be_null_text_or_parts(server: Server, content: Any) -> None:
    messages = [{"role": "system", "content": content}, {"role": "user", "content": "hello"}]
    assert post(server, {"messages": messages}).status_code == 200


def test_text_completions_take_a_raw_prompt(server: Server) -> None:
    answer = post(server, {"prompt": "a b c", "logprobs": 1}, "/v1/completions").json()
    assert answer["object"] == "text_completion"
    choice = answer["choices"][0]
    assert choice["text"] == "a b c"
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] == {
        "tokens": ["a", " b", " c"],
        "token_logprobs": [-0.25] * 3,
        "top_logprobs": [{"a": -0.25}, {" b": -0.25}, {" c": -0.25}],
        "text_offset": [0, 1, 3],
    }
    assert answer["usage"]["completion_tokens"] == 3


def test_text_completions_stream(server: Server) -> None:
    chunks = chunks_of(post(server, {"prompt": ["a b"], "stream": True}, "/v1/completions"))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["a", " b", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
