"""Requests as Open WebUI 0.12.4 sent them from its page: the program itself is gigabytes and not installed here.

`open_webui.json` has a question, the next one, and the three that it asks for itself, field by field as they came;
tools and instructions stand for its own, which are longer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agreed
import httpx2 as httpx
import pytest
from running import KEY, Servers
from serving import http

SENT: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("open_webui.json").read_text())


def ask(servers: Servers, body: dict[str, Any]) -> httpx.Response:
    url = f"{servers.scripted.chat_url}/v1/chat/completions"
    return http.post(url, json=body, headers={"Authorization": f"Bearer {KEY}"})


def choices(response: httpx.Response) -> list[dict[str, Any]]:
    """Of each chunk of a stream."""
    assert response.status_code == 200, response.text
    *events, end = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert end == "[DONE]"
    return [json.loads(event)["choices"][0] for event in events]


@pytest.mark.parametrize(("case", "words"), [("question", agreed.WORDS), ("second question", "and four")])
def test_a_question_is_answered_in_words_though_it_offers_tools(
    servers: Servers, case: str, words: str
) -> None:
    assert SENT[case]["tools"]
    told = choices(ask(servers, SENT[case]))
    assert "".join(choice["delta"].get("content", "") for choice in told) == words
    assert told[-1]["finish_reason"] == "stop"
    assert not any("tool_calls" in choice["delta"] for choice in told)


@pytest.mark.parametrize("case", ["tags", "follow-ups"])
def test_what_it_asks_for_itself_is_answered_whole(servers: Servers, case: str) -> None:
    response = ask(servers, SENT[case])
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"]


def test_a_title_that_the_context_has_no_room_for_says_so(servers: Servers) -> None:
    """It asks for up to 1,000 tokens; the scripted model's context is 256."""
    response = ask(servers, SENT["title"])
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert "but 'max_tokens' is 1000. Lower 'max_tokens' to" in response.json()["error"]["message"]


def test_tools_on_offer_change_neither_prompt_nor_answer(servers: Servers) -> None:
    url = f"{servers.tiny.chat_url}/v1/chat/completions"
    body = {**SENT["question"], "model": "tiny", "stream": False, "max_tokens": 16, "seed": 7}
    offered = http.post(url, json=body).json()
    plain = http.post(url, json={name: value for name, value in body.items() if name != "tools"}).json()
    assert offered["choices"] == plain["choices"]
    assert offered["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


def test_its_list_of_models_is_the_one_that_is_served(servers: Servers) -> None:
    url = f"{servers.scripted.chat_url}/v1/models"
    answer = http.get(url, headers={"Authorization": f"Bearer {KEY}", "Accept": "*/*"}).json()
    assert [model["id"] for model in answer["data"]] == [SENT["question"]["model"]]
