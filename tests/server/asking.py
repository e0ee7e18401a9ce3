"""Asks a server in both stream modes and reads what comes, so that a test can say that they agree."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
from serving import Server, http


@dataclass(frozen=True)
class Answer:
    """What a client has in the end, by either mode."""

    text: str
    reason: str | None
    usage: dict[str, int]
    pieces: tuple[str, ...] = ()
    """The texts of the chunks, of a streamed answer."""


def ask(server: Server, body: dict[str, Any], path: str = "/v1/chat/completions") -> httpx.Response:
    return http.post(f"{server.chat_url}{path}", json=body)


def in_both_modes(server: Server, body: dict[str, Any], path: str = "/v1/chat/completions") -> Answer:
    """The answer, which must be the same whole and streamed; returned is the streamed one."""
    response = ask(server, body, path)
    assert response.status_code == 200, response.text
    answer = response.json()
    (choice,) = answer["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    streamed = read_stream(
        ask(server, {**body, "stream": True, "stream_options": {"include_usage": True}}, path)
    )
    assert streamed.text == text
    assert streamed.reason == choice["finish_reason"]
    assert streamed.usage == _numbers(answer["usage"])
    return streamed


def refused_in_both_modes(
    server: Server, body: dict[str, Any], path: str = "/v1/chat/completions"
) -> dict[str, Any]:
    """The error, which must be the same before a stream begins."""
    whole, streamed = (ask(server, {**body, "stream": stream}, path) for stream in (False, True))
    assert whole.status_code == streamed.status_code == 400, (whole.text, streamed.text)
    assert whole.json() == streamed.json()
    return dict(whole.json()["error"])


def read_stream(response: httpx.Response) -> Answer:
    """Raises for a stream in another shape than OpenAI's: ids that differ, a role twice, a block without data."""
    assert response.status_code == 200, response.text
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    assert blocks[-1] == "data: [DONE]"
    chunks = [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    deltas = [choice.get("delta", choice) for choice in choices]
    assert all("role" not in delta for delta in deltas[1:])
    assert all(choice["finish_reason"] is None for choice in choices[:-1])
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    pieces = tuple(text for delta in deltas if (text := delta.get("content", delta.get("text"))))
    return Answer("".join(pieces), choices[-1]["finish_reason"], _numbers(chunks[-1]["usage"]), pieces)


def _numbers(usage: dict[str, Any]) -> dict[str, int]:
    """The three that a question decides: what of a prompt was cached is another matter."""
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
