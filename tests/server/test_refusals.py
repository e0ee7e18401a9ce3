"""What is refused, and how: an error object in OpenAI's shape with the right status, and the server lives on."""

from __future__ import annotations

import gzip
import json
import random
import socket
from typing import Any

import httpx2 as httpx
import pytest
from serving import Server, http, raw_request, status_of

CHAT = "/v1/chat/completions"
LONGEST_MESSAGE = 400
"""Characters of a message: what was sent is shown cut short, however long it was."""
LONG = "x" * 100_000
USER = [{"role": "user", "content": "hello"}]


def assert_is_error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["code"]
    assert len(error["message"]) < LONGEST_MESSAGE
    return dict(error)


def post(server: Server, body: bytes, kind: str = "application/json") -> httpx.Response:
    return http.post(f"{server.chat_url}{CHAT}", content=body, headers={"Content-Type": kind}, timeout=30)


WRONG_FIELDS: list[tuple[str, Any, str]] = [
    ("temperature", "0.7", "a number from 0 to 2"),
    ("temperature", True, "a number from 0 to 2"),
    ("temperature", -0.1, "a number from 0 to 2"),
    ("temperature", 2.1, "a number from 0 to 2"),
    ("top_p", 1.5, "a number from 0 to 1"),
    ("max_tokens", 0, "a whole number of 1 or more"),
    ("max_tokens", -1, "a whole number of 1 or more"),
    ("max_tokens", 1.5, "a whole number of 1 or more"),
    ("max_tokens", 1e12, "Lower 'max_tokens'"),
    ("max_tokens", 1e300, "Lower 'max_tokens'"),
    ("max_completion_tokens", 0, "a whole number of 1 or more"),
    ("stream", "true", "true or false"),
    ("stream", 1, "true or false"),
    ("stream_options", [], "an object"),
    ("stop", "", "none of them empty"),
    ("stop", [""], "none of them empty"),
    ("stop", ["a", "b", "c", "d", "e"], "at most 4 strings"),
    ("stop", [1], "at most 4 strings"),
    ("seed", 1.5, "a whole number from"),
    ("seed", 2**63, "a whole number from"),
    ("seed", 2.0**63, "a whole number from"),
    ("logprobs", 1, "true or false"),
    ("top_logprobs", 21, "a whole number from 0 to 20"),
    ("top_logprobs", 2, "needs 'logprobs'"),
    ("presence_penalty", 3, "a number from -2 to 2"),
    ("frequency_penalty", "1", "a number from -2 to 2"),
    ("logit_bias", [1], "an object"),
    ("logit_bias", {"a": 1}, "token ids"),
    ("logit_bias", {"٣": 1}, "token ids"),
    ("logit_bias", {"01": 1}, "token ids"),
    ("logit_bias", {"1": "x"}, "token 1 is 'x'; it must be a number from -100 to 100"),
    ("logit_bias", {"1": 101}, "token 1 is 101; it must be a number from -100 to 100"),
    ("logit_bias", {"1": True}, "token 1 is true; it must be a number from -100 to 100"),
    ("n", 2, "'n' must be 1"),
    ("n", 0, "a whole number of 1 or more"),
    ("tool_choice", "required", "Tools are not supported"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}, "Tools are not supported"),
    ("function_call", {"name": "f"}, "Functions are not supported"),
    ("response_format", {"type": "json_object"}, "'text'"),
    ("response_format", {"type": "json_schema", "json_schema": {}}, "'text'"),
    ("modalities", ["text", "audio"], "Only text"),
    ("model", 5, "a string"),
    ("temperature", LONG, "a number from 0 to 2"),
    ("temperature", 10**30, "a number from 0 to 2"),
]


@pytest.mark.parametrize(("field", "value", "accepted"), WRONG_FIELDS, ids=lambda value: repr(value)[:30])
def test_a_wrong_field_is_named_with_what_is_accepted(
    server: Server, field: str, value: Any, accepted: str
) -> None:
    response = post(server, json.dumps({"messages": USER, field: value}).encode())
    error = assert_is_error(response, 400)
    assert error["param"] == field
    assert error["type"] == "invalid_request_error"
    assert accepted in error["message"]


WRONG_MESSAGES: list[tuple[Any, str]] = [
    (None, "messages"),
    ("hello", "messages"),
    (5, "messages"),
    ([], "messages"),
    ([1], "messages[0]"),
    ([{}], "messages[0].role"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": None, "content": "x"}], "messages[0].role"),
    ([{"role": LONG, "content": "x"}], "messages[0].role"),
    ([{"role": "\ud800", "content": "x"}], "messages[0].role"),
    ([{"role": [LONG], "content": "x"}], "messages[0].role"),
    ([{"role": "user", "content": [{"type": LONG}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
    ([{"role": "bishop", "content": "x"}], "messages[0].role"),
    ([{"role": "tool", "content": "x"}], "messages[0].role"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]"),
    ([*USER, {"role": "assistant", "content": None, "tool_calls": [{}]}], "messages[1].tool_calls"),
]


@pytest.mark.parametrize(("messages", "param"), WRONG_MESSAGES, ids=lambda value: repr(value)[:40])
def test_a_wrong_message_is_named(server: Server, messages: Any, param: str) -> None:
    error = assert_is_error(post(server, json.dumps({"messages": messages}).encode()), 400)
    assert error["param"] == param


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "not valid JSON"),
        (b"null", "is null; it must be a JSON object"),
        (b"[]", "is a list"),
        (b"5", "is 5"),
        (b'"a"', "is 'a'"),
        (b'"' + b"a" * 100_000 + b'"', "is 'aaaa"),
        (b'{"model": "a", "n": 1, "model": "b"}', "gives 'model' twice"),
        (b'{"messages": [{"role": "user", "role": "system"}]}', "gives 'role' twice"),
        (b'{"' + b"k" * 100_000 + b'": 1, "' + b"k" * 100_000 + b'": 2}', "kkk'... twice"),
        (b'{"temperature": NaN}', "holds NaN"),
        (b'{"temperature": -Infinity}', "holds -Infinity"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", "more than 32 levels"),
        (b"[" * 100_000, "32 levels"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "a number of 5,000 digits"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_body_that_is_no_json_object_is_refused(server: Server, body: bytes, complaint: str) -> None:
    error = assert_is_error(post(server, body), 400)
    assert error["code"] == "invalid_json"
    assert complaint in error["message"]


def test_a_number_too_large_for_a_float_is_refused(server: Server) -> None:
    response = post(server, b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}')
    assert "too large for a number" in assert_is_error(response, 400)["message"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_only_json_by_name_is_read(server: Server, kind: str) -> None:
    error = assert_is_error(post(server, json.dumps({"messages": USER}).encode(), kind), 415)
    assert "send application/json" in error["message"]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZip", "identity, gzip", "y" * 5000])
def test_a_compressed_body_is_refused_as_such(server: Server, coding: str) -> None:
    body = gzip.compress(json.dumps({"messages": USER}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    error = assert_is_error(http.post(f"{server.chat_url}{CHAT}", content=body, headers=headers), 415)
    assert error["code"] == "unsupported_content_encoding"
    assert f"Content-Encoding is '{coding.lower()[:60]}'" in error["message"]
    assert "without compression" in error["message"]
    plain = {"Content-Type": "application/json", "Content-Encoding": "identity"}
    answer = http.post(f"{server.chat_url}{CHAT}", content=json.dumps({"messages": USER}), headers=plain)
    assert answer.status_code == 200


def test_a_model_that_is_not_served_is_named_cut_short(server: Server) -> None:
    for model in (LONG, "\ud800", "a\nb\x00"):
        error = assert_is_error(post(server, json.dumps({"messages": USER, "model": model}).encode()), 404)
        assert (error["param"], error["code"]) == ("model", "model_not_found")


def test_json_with_a_charset_is_read(server: Server) -> None:
    body = json.dumps({"messages": USER}).encode()
    for charset in ("utf-8", "UTF-8", '"utf-8"', "us-ascii"):
        assert post(server, body, f"application/json; charset={charset}").status_code == 200


def test_json_in_another_charset_is_refused_and_not_misread(server: Server) -> None:
    body = json.dumps({"messages": USER}, ensure_ascii=False).encode("latin-1")
    error = assert_is_error(post(server, body, "application/json; charset=latin-1"), 415)
    assert "The charset is 'latin-1'; send JSON in UTF-8." in error["message"]


def test_a_whole_number_may_be_written_with_a_point(server: Server) -> None:
    answer = server.chat("a b c d", max_tokens=2.0, seed=1.0, n=1.0, logprobs=True, top_logprobs=1.0)
    assert answer.json()["usage"]["completion_tokens"] == 2


def test_half_a_surrogate_pair_is_replaced(server: Server) -> None:
    response = post(server, rb'{"messages": [{"role": "user", "content": "a \ud800 b"}]}')
    assert response.status_code == 200
    assert "\ud800" not in response.text


def test_a_long_body_is_refused_whether_its_length_is_stated_or_not(server: Server) -> None:
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 1_000_001}]}).encode()
    assert_is_error(post(server, long), 413)

    def pieces() -> Any:
        yield from (long[i : i + 65536] for i in range(0, len(long), 65536))

    response = http.post(
        f"{server.chat_url}{CHAT}", content=pieces(), headers={"Content-Type": "application/json"}, timeout=30
    )
    error = assert_is_error(response, 413)
    assert "longer than 1,000,000 bytes" in error["message"]


def test_a_long_stated_length_is_refused_before_the_body_comes(server: Server) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = raw_request(server.port, f"{head}Content-Length: 99999999999\r\n\r\n".encode())
    assert status_of(answer) == 413


@pytest.mark.parametrize("body", [b"zz\r\nhello\r\n0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n"])
def test_a_wrongly_chunked_body_is_refused(server: Server, body: bytes) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = raw_request(server.port, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + body)
    assert status_of(answer) == 400
    assert b'"code":"invalid_body"' in answer


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_body_that_ends_before_its_stated_length_is_refused_though_it_is_json(
    server: Server, path: str
) -> None:
    body = json.dumps({"messages": USER, "prompt": "a"}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: {len(body) + 1}\r\n\r\n".encode() + body)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert status_of(answer) == 400
    assert b'"code":"invalid_body"' in answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/models/x", 405),
        ("POST", "/v1/responses", 404),
        ("GET", "/v1/../../etc/passwd", 404),
        ("GET", "/%00", 404),
        ("GET", "/%ff", 404),
        ("GET", "/v1//models", 404),
        ("GET", "/" + "x" * 5000, 404),
        ("OPTIONS", "/nowhere", 404),
        ("GET", "/v1/features/stream", 404),  # of the other port
        ("BREW", "/v1/models", 405),
    ],
)
def test_every_route_error_of_the_chat_port_has_the_shape(
    server: Server, method: str, path: str, status: int
) -> None:
    response = http.request(method, f"{server.chat_url}{path}")
    assert_is_error(response, status)
    message = response.json()["error"]["message"]
    if status == 405:
        assert response.headers["allow"]
        assert f"takes {response.headers['allow']} and not {method}." in message
    elif path != "/v1/responses":
        assert "/v1/chat/completions, " in message, "it says what there is"


LIMITED = ("filter", "align", "top_k", "threshold", "min_activation", "features", "since")


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/v1/chat/completions", 404, None),
        ("/v1/features/32", 404, None),
        ("/v1/features/99999999999999999999", 404, None),
        ("/v1/features/-1", 404, None),
        ("/v1/features/x", 404, None),
        ("/v1/features/00012", 404, None),
        ("/v1/features/1e3", 404, None),
        ("/v1/features/%D9%A3", 404, None),  # a digit, in Arabic
        ("/v1/features/%00", 404, None),
        (f"/v1/features/{'9' * 5000}", 404, None),
        ("/v1/features/5?examples=best", 400, "examples"),
        ("/v1/features/5?examples=top,top", 400, "examples"),
        ("/v1/features/5?examples=", 400, "examples"),
        ("/v1/features/5?n=0", 400, "n"),
        ("/v1/features/5?n=201", 400, "n"),
        ("/v1/features/search?sort=rank", 400, "sort"),
        ("/v1/features/search?q=a&order=up", 400, "order"),
        ("/v1/features/search?labels=none", 400, "labels"),
        ("/v1/features/search?offset=-1", 400, "offset"),
        ("/v1/features/search?q=a&limit=0", 400, "limit"),
        ("/v1/features/stream?filter=best", 400, "filter"),
        ("/v1/features/stream?top_k=0", 400, "top_k"),
        ("/v1/features/stream?top_k=1e3", 400, "top_k"),
        ("/v1/features/stream?threshold=nan", 400, "threshold"),
        ("/v1/features/stream?threshold=2", 400, "threshold"),
        ("/v1/features/stream?min_activation=-1", 400, "min_activation"),
        ("/v1/features/stream?min_activation=inf", 400, "min_activation"),
        ("/v1/features/stream?features=1,,2", 400, "features"),
        ("/v1/features/stream?features=", 400, "features"),
        ("/v1/features/stream?features=4,32", 400, "features"),
        (f"/v1/features/{'9' * 30}", 404, None),
        ("/v1/features/stream?align=left", 400, "align"),
        ("/v1/features/stream?since=yesterday", 400, "since"),
        ("/v1//features/labels", 404, None),
        *((f"/v1/features/stream?{name}={'9' * 5000}", 400, name) for name in LIMITED),
        (f"/v1/features/search?q=a&limit={'9' * 5000}", 400, "limit"),
    ],
)
def test_every_error_of_the_features_port_has_the_shape(
    server: Server, path: str, status: int, param: str | None
) -> None:
    assert assert_is_error(server.get(path), status)["param"] == param


def test_the_responses_api_names_the_endpoint_to_use(server: Server) -> None:
    response = http.post(f"{server.chat_url}/v1/responses", json={})
    assert "/v1/chat/completions" in assert_is_error(response, 404)["message"]


def test_text_completions_refuse_what_they_cannot_do(server: Server) -> None:
    for body, param in [
        ({"prompt": "a", "echo": 1}, "echo"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "echo": True, "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "a", "n": 2}, "n"),
    ]:
        response = http.post(f"{server.chat_url}/v1/completions", json=body)
        assert assert_is_error(response, 400)["param"] == param


def test_a_prompt_over_the_context_is_refused_with_the_numbers(server: Server) -> None:
    for stream in (False, True):
        response = server.chat("word " * 256, stream=stream, max_tokens=1)
        error = assert_is_error(response, 400)
        assert error["code"] == "context_length_exceeded"
        assert (
            "context length is 256 tokens and 'messages' has 256: the prompt is too long, there is no room"
            in error["message"]
        )
        assert error["param"] == "messages"
    for limit in ("max_tokens", "max_completion_tokens"):
        error = assert_is_error(server.chat("hello", **{limit: 10**20}), 400)
        assert error["code"] == "context_length_exceeded"
        assert error["param"] == limit
        assert f"'{limit}' is {10**20}. Lower '{limit}' to 255 or less." in error["message"]
    asked = {"prompt": ["word " * 300], "max_tokens": 1}
    error = assert_is_error(http.post(f"{server.chat_url}/v1/completions", json=asked), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert "'prompt' has 300" in error["message"]
    assert server.chat("word " * 255, max_tokens=1).status_code == 200


def test_a_limit_that_was_not_sent_is_never_too_high(server: Server) -> None:
    """A text completion has 16 tokens where its request does not say, or what the context of 256 has room for."""
    for words, expected in [(3, (3, "stop")), (250, (6, "length")), (255, (1, "length"))]:
        for own in ({}, {"max_tokens": None}, {"echo": True}):
            asked = {"prompt": "word " * words, **own}
            answer = http.post(f"{server.chat_url}/v1/completions", json=asked).json()
            said = answer["usage"]["completion_tokens"]
            assert (said, answer["choices"][0]["finish_reason"]) == expected
    asked = {"prompt": "word " * 256}
    error = assert_is_error(http.post(f"{server.chat_url}/v1/completions", json=asked), 400)
    assert "there is no room for an answer. Shorten 'prompt'." in error["message"]
    asked = {"prompt": "word " * 250, "max_tokens": 16}
    assert_is_error(http.post(f"{server.chat_url}/v1/completions", json=asked), 400)


def test_a_failing_model_is_an_error_and_the_next_request_works(server: Server) -> None:
    for _ in range(3):
        error = assert_is_error(server.chat("[fail=1] a b c"), 500)
        assert error["code"] == "generation_failed"
        assert "RuntimeError" in error["message"]
        assert "the script says so" not in error["message"], "what an exception says may be private"
        streamed = server.chat("[fail=1] a b c", stream=True)
        assert streamed.status_code == 200
        blocks = streamed.text.strip().split("\n\n")
        assert blocks[-1] == "data: [DONE]"
        assert json.loads(blocks[-2].removeprefix("data: "))["error"]["code"] == "generation_failed"
        assert server.chat("a b c").json()["choices"][0]["message"]["content"] == "a b c"


def test_generated_bodies_never_fail_inside_the_server(server: Server) -> None:
    """Well-formed and half-formed nonsense, 150 bodies from a fixed seed: answered, and never with a 5xx."""
    rng = random.Random(0)
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        1.5,
        1e300,
        "",
        "a",
        "\x00",
        "💥",
        [],
        {},
        [[]],
        {"a": None},
        2**70,
    ]
    names = [
        *("messages", "model", "stream", "max_tokens", "temperature", "top_p", "stop", "seed", "logprobs"),
        *("top_logprobs", "logit_bias", "n", "stream_options", "tool_choice", "response_format", "prompt"),
    ]
    for _ in range(150):
        body = {name: rng.choice(values) for name in rng.sample(names, 4)}
        if rng.random() < 0.7:
            keys = {"role": rng.choice(["user", "x", 1]), "content": rng.choice(values)}
            body["messages"] = [keys for _ in range(rng.randint(1, 3))]
        encoded = json.dumps(body).encode()
        cut = encoded[: rng.randint(1, len(encoded))] if rng.random() < 0.1 else encoded
        response = post(server, cut)
        assert response.status_code in (200, 400, 404), (cut, response.text)
