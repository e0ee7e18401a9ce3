"""The cases from public bug reports about servers like this one, each with the test that holds it.

A case is ticked off by its tests' names, which must be there; the few that are about no other file's subject are
tested here. `both` marks what is asked whole and streamed.
"""

from __future__ import annotations

import ast
import json
import math
import socket
from pathlib import Path
from typing import Any

import pytest
from asking import ask, in_both_modes, refused_in_both_modes
from serving import Server, http, status_of

TEXT = "test_said_text.py::"
PROMPTS = "test_told_prompts.py::"
REFUSALS = "test_refusals.py::"
HERE = "test_cases.py::"

CASES = {
    "emoji, ZWJ families and CJK split over tokens": [TEXT + "test_the_text_arrives_as_it_was_said"],
    "the same when only the incremental path is driven": [TEXT + "test_the_events_alone_hold_the_same_text"],
    "spaces at the start and indented code": [TEXT + "test_the_text_arrives_as_it_was_said"],
    "a stop string over several tokens": [TEXT + "test_nothing_is_lost_or_doubled_around_a_stop_string"],
    "text before a stop at the end of a stream": [
        TEXT + "test_nothing_is_lost_or_doubled_around_a_stop_string"
    ],
    "stop '', [''], null, []": [
        TEXT + "test_an_empty_stop_string_is_refused",
        TEXT + "test_nothing_is_lost_or_doubled_around_a_stop_string",
    ],
    "a system message first, only, twice, after user turns": [
        PROMPTS + "test_a_conversation_becomes_turns_and_is_answered"
    ],
    "developer": [PROMPTS + "test_a_conversation_becomes_turns_and_is_answered"],
    "[user, user], assistant first": [
        PROMPTS + "test_a_conversation_becomes_turns_and_is_answered",
        PROMPTS + "test_a_conversation_that_cannot_be_read_is_refused_alike",
    ],
    "control tokens inside user text": [PROMPTS + "test_a_conversation_becomes_turns_and_is_answered"],
    "content parts in user and system messages": [
        PROMPTS + "test_a_conversation_becomes_turns_and_is_answered"
    ],
    "an image part": [PROMPTS + "test_a_conversation_that_cannot_be_read_is_refused_alike"],
    "empty system content": [PROMPTS + "test_a_conversation_becomes_turns_and_is_answered"],
    "max_completion_tokens 3": [TEXT + "test_a_limit_counts_tokens"],
    "an unknown field": [HERE + "test_fields_of_other_servers_are_ignored"],
    "temperature 0 and 1e-9, top_p 0": [
        PROMPTS + "test_a_temperature_or_nucleus_of_next_to_nothing_is_greedy"
    ],
    "NaN, 1e999, '0.7', true": [HERE + "test_a_number_that_is_none_is_refused"],
    "prompts at and over the context": [
        PROMPTS + "test_the_context_is_filled_to_the_last_token_and_not_beyond"
    ],
    "max_tokens 0, -1, 1.5, 1e12, 1": [
        HERE + "test_a_number_that_is_none_is_refused",
        REFUSALS + "test_a_wrong_field_is_named_with_what_is_accepted",
        TEXT + "test_a_limit_counts_tokens",
    ],
    "invalid JSON, null, [], 5 as bodies": [REFUSALS + "test_a_body_that_is_no_json_object_is_refused"],
    "messages as string, number, [1], [{}]": [
        PROMPTS + "test_a_conversation_that_cannot_be_read_is_refused_alike"
    ],
    "stream 'true'": [REFUSALS + "test_a_wrong_field_is_named_with_what_is_accepted"],
    "close at token 3 and during prefill, then a normal call, twenty times": [
        TEXT + "test_leaving_in_the_middle_leaves_the_next_answer_whole",
        "test_queue.py::test_a_client_that_leaves_ends_its_generation_within_a_token",
    ],
    "an exception in the forward pass, then a normal call": [
        REFUSALS + "test_a_failing_model_is_an_error_and_the_next_request_works"
    ],
    "eight parallel requests with distinct answers": [
        TEXT + "test_eight_parallel_questions_get_their_own_answers"
    ],
    "200 at once": [HERE + "test_two_hundred_at_once_are_served_or_refused"],
    "preflight with x-stainless-*": [HERE + "test_a_browsers_client_may_send_its_own_headers"],
    "reconnect with Last-Event-ID": [
        "test_features_stream.py::test_a_reconnecting_subscriber_gets_every_event_exactly_once"
    ],
    "a reader that never reads": ["test_queue.py::test_a_reader_that_never_reads_stops_nobody"],
    "SIGTERM with an idle stream and a generation": [
        "test_shutdown.py::test_the_end_comes_soon_with_a_last_event_for_everyone"
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_its_test(case: str) -> None:
    for name in CASES[case]:
        file, _, function = name.partition("::")
        tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


HELLO = [{"role": "user", "content": "one two three"}]
QUEUE = 4
"""Requests that may wait, by conftest.py."""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("temperature", value) for value in ("0.7", True, float("nan"), float("inf"), -1, [])),
        *(("max_tokens", value) for value in (0, -1, 1.5, "1", True)),
        *(("top_p", value) for value in ("1", -0.1, float("nan"))),
    ],
)
def test_a_number_that_is_none_is_refused(server: Server, field: str, value: Any) -> None:
    """NaN and infinity, which are no JSON, as the body's fault; what JSON can say, as the field's."""
    answers = []
    for stream in (False, True):
        body = json.dumps({"messages": HELLO, field: value, "stream": stream}).encode()
        headers = {"Content-Type": "application/json"}
        answers.append(http.post(f"{server.chat_url}/v1/chat/completions", content=body, headers=headers))
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].json() == answers[1].json()
    error = answers[0].json()["error"]
    is_json = not isinstance(value, float) or math.isfinite(value)
    assert (error["param"], error["code"]) == (
        (field, "invalid_value") if is_json else (None, "invalid_json")
    )


CLIENTS_BODIES: dict[str, dict[str, Any]] = {
    "Open WebUI's chat": {
        "stream_options": {"include_usage": True},
        "metadata": {"chat_id": "c", "message_id": "m", "features": {}},
        "params": {},
        "tool_ids": [],
        "features": {"web_search": False, "image_generation": False},
        "chat_id": "c",
        "session_id": "s",
        "background_tasks": {"title_generation": True},
    },
    "Open WebUI's title": {"max_completion_tokens": 200, "metadata": {"task": "title_generation"}},
    "LibreChat": {
        "user": "65f0",
        "temperature": 1,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "resendFiles": True,
        "promptPrefix": None,
    },
    "Continue": {
        "max_tokens": 100,
        "tools": [],
        "stop": ["<|im_end|>", "\n\n\n"],
        "parallel_tool_calls": False,
    },
    "aider": {"temperature": 0, "num_ctx": 8192, "extra_headers": {}, "top_k": 40, "min_p": 0.0},
    "OpenAI's own newer fields": {
        "store": True,
        "metadata": {},
        "reasoning_effort": "low",
        "verbosity": "low",
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "prediction": None,
        "web_search_options": None,
    },
    "other servers' fields": {
        "chat_template_kwargs": {"enable_thinking": False},
        "repetition_penalty": 1.0,
        "ignore_eos": False,
        "guided_json": None,
        "cache_prompt": True,
        "keep_alive": "5m",
    },
    "null for everything": dict.fromkeys(["max_tokens", "stop", "seed", "logit_bias", "n", "user", "tools"]),
}


@pytest.mark.parametrize("client", CLIENTS_BODIES)
def test_fields_of_other_servers_are_ignored(server: Server, client: str) -> None:
    body = {"model": "scripted/model", "messages": HELLO, **CLIENTS_BODIES[client]}
    assert in_both_modes(server, body).text == "one two three"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tool_choice", "required"),
        ("function_call", {"name": "f"}),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}),
        ("modalities", ["text", "audio"]),
        ("n", 2),
    ],
)
def test_what_would_change_the_answer_unseen_is_refused(server: Server, field: str, value: Any) -> None:
    assert refused_in_both_modes(server, {"messages": HELLO, field: value})["param"] == field


def test_two_hundred_at_once_are_served_or_refused(server: Server) -> None:
    server.wait_idle()
    body = json.dumps({"messages": [{"role": "user", "content": "[delay=0.01] a b c"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n{body}".encode()
    sockets = [socket.create_connection(("127.0.0.1", server.port), timeout=120) for _ in range(200)]
    for connection in sockets:
        connection.sendall(request)
    answers = [b"".join(iter(lambda c=connection: c.recv(65536), b"")) for connection in sockets]  # type: ignore[misc]
    for connection in sockets:
        connection.close()
    served = [answer for answer in answers if status_of(answer) == 200]
    assert len(served) >= QUEUE
    assert all(b"a b c" in answer for answer in served)
    for answer in answers:
        if answer not in served:
            assert status_of(answer) == 429
            assert b"\r\nRetry-After: " in answer
    assert ask(server, {"messages": HELLO}).status_code == 200


def test_a_browsers_client_may_send_its_own_headers(server: Server) -> None:
    """What openai-node adds to every request, asked for by a page of the server's own origin."""
    names = ["authorization", "content-type", "x-stainless-arch", "x-stainless-lang", "x-stainless-os"]
    names += [
        "x-stainless-package-version",
        "x-stainless-retry-count",
        "x-stainless-runtime",
        "x-stainless-timeout",
    ]
    origin = f"http://localhost:{server.features_port}"
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = ", ".join(names)
    preflight = http.options(f"{server.chat_url}/v1/chat/completions", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == origin
    allowed = {name.strip().lower() for name in preflight.headers["access-control-allow-headers"].split(",")}
    assert set(names) <= allowed
    sent = {"Origin": origin, **{name: "1" for name in names if name.startswith("x-")}}
    for stream in (False, True):
        body = {"messages": HELLO, "stream": stream}
        answer = http.post(f"{server.chat_url}/v1/chat/completions", json=body, headers=sent)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
