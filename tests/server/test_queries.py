"""Query strings and paths: each has one meaning, and what was meant is never ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import EventStream, Server, http, raw_request, status_of

SEARCH = "/v1/features/search"
STREAM = "/v1/features/stream"


def refused(server: Server, target: str, *, method: str = "GET", status: int = 400) -> dict[str, Any]:
    """The error of a request line that is sent as it stands: a client would tidy it up."""
    request = (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    answer = raw_request(server.features_port, request.encode("latin-1"))
    assert status_of(answer) == status, answer
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (f"{STREAM}?topk=5", "top_k, filter, threshold, min_activation, features, align, completion_id"),
        (f"{STREAM}?top_k=5&Filter=none", "top_k, filter"),
        (f"{STREAM}?t=0.5", "top_k, filter"),
        (f"{STREAM}?top_k%00=5", "top_k, filter"),
        (f"{STREAM}?=5", "top_k, filter"),
        (f"{STREAM}?{'x' * 5000}=5", "top_k, filter"),
        (f"{SEARCH}?q=a&q[]=b", "has q, labels, sort, order, limit, offset."),
        (f"{SEARCH}?q=a&%0d%0aX:y=1", "has q, labels, sort"),
        ("/v1/features/labels?width=4", "has none."),
        ("/v1/features/4?example=50", "has examples, n."),
    ],
    ids=lambda value: value[:50],
)
def test_an_unknown_parameter_is_refused_with_those_there_are(server: Server, path: str, names: str) -> None:
    error = refused(server, path)
    assert error["code"] == "unknown_parameter"
    assert names in error["message"]
    assert len(error["message"]) < 300


def test_a_parameter_in_a_bodys_place_is_told_where_it_belongs(server: Server) -> None:
    for body, words in [
        ({"text": "a", "top_k": 5}, "It goes into the query string."),
        ({"txet": "a"}, "There is no field 'txet'; the body has text, messages or token_ids."),
        ({"text": "a", "x" * 5000: 1}, "the body has text, messages or token_ids."),
    ]:
        response = http.post(f"{server.features_url}/v1/features/encode", json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "unknown_parameter")
        assert words in error["message"]
        assert len(error["message"]) < 300


@pytest.mark.parametrize("query", ["_=1700000000", "_", "__proto__=1", "_%5F=2&_=3", "", "&&"])
def test_what_keeps_caches_from_answering_is_not_read(server: Server, query: str) -> None:
    for path in ("/v1/features/4", f"{SEARCH}?q=label+of+7&limit=3"):
        answer = server.get(f"{path}{'&' if '?' in path else '?'}{query}")
        assert answer.status_code == 200, answer.text
        assert answer.json() == server.get(path).json()


def test_paths_that_take_no_parameters_of_ours_do_not_read_the_query(server: Server) -> None:
    """Probes and links carry some; outside `/v1/features/` there is nothing they could have meant."""
    for path in ("/healthz", "/readyz", "/", "/openapi.json"):
        assert server.get(f"{path}?utm_source=x&%ff").status_code == 200
    assert http.get(f"{server.chat_url}/v1/models?api-version=1").status_code == 200


@pytest.mark.parametrize(
    "path", [f"{STREAM}?top_k=1&top_k=1", f"{STREAM}?top_k=1&%74op_k=2", f"{STREAM}?top_k&top_k"]
)
def test_a_parameter_that_is_given_twice_is_refused(server: Server, path: str) -> None:
    error = refused(server, path)
    assert error["param"] == "top_k"
    assert "'top_k' is given twice; give it once." in error["message"]


@pytest.mark.parametrize("text", ["%ff", "a%C3", "%ED%A0%80", "%C0%80", "%F8%88%80%80%80"])
def test_a_query_that_is_not_utf8_is_refused(server: Server, text: str) -> None:
    for path in (f"{SEARCH}?q={text}", f"{STREAM}?{text}=1", f"{STREAM}?_={text}"):
        error = refused(server, path)
        assert error["code"] == "invalid_query"
        assert f"not UTF-8, in '{text}'" in error["message"]


NO_NUMBERS = ["", "1_0", "0x1", "%D9%A1", "%EF%BC%91", "nan", "1%00", "-1", "1.0.0", "9" * 5000]
NOT_ONE_NUMBER = ["+1", "%201", "1%20", "1,0", "1e999", "infinity"]


@pytest.mark.parametrize("name", ["top_k", "threshold", "min_activation", "features"])
def test_a_number_is_written_in_one_way(server: Server, name: str) -> None:
    for text in [*NO_NUMBERS, *(NOT_ONE_NUMBER if name != "features" else ["1,,2", "1;2", "1,%09,2"])]:
        error = refused(server, f"{STREAM}?{name}={text}")
        assert (error["param"], error["code"]) == (name, "invalid_value"), text
        assert len(error["message"]) < 200


def test_numbers_that_are_meant_are_read(server: Server) -> None:
    for query in ("threshold=.5e0&min_activation=1.&top_k=007", "features=1,+2,%203", "threshold=1e-999"):
        with EventStream(server.features_port, f"{STREAM}?{query}") as subscriber:
            assert subscriber.status == 200


@pytest.mark.parametrize("value", ["", "%0a", "a%20b", "%C3%A9", "x" * 65])
def test_an_id_that_no_answer_has_is_refused_and_not_waited_for(server: Server, value: str) -> None:
    error = refused(server, f"{STREAM}?completion_id={value}")
    assert error["param"] == "completion_id"


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/features/%D9%A4", "/v1/features/%EF%BC%94", "/v1/features/04", "/v1/features/+4"),
        *(
            "/v1/features/4/",
            "/v1/features/4.0",
            "/v1/features/4%00",
            "/v1/features/4%0a",
            "/v1/features/%2534",
        ),
        *("/v1/features/-0", "/v1/features/4;x=1", "/v1/features/%ff", "/v1/features/%C0%B4"),
        f"/v1/features/{'9' * 5000}",
    ],
)
def test_a_feature_has_one_number(server: Server, path: str) -> None:
    assert refused(server, path, status=404)["code"] == "not_found"
    assert server.get("/v1/features/4").json()["feature"] == 4
    assert server.get("/v1/features/%34").json()["feature"] == 4


@pytest.mark.parametrize("value", ["", "%0", "%zz", "100%"])
def test_a_percent_sign_alone_is_itself(server: Server, value: str) -> None:
    assert server.get(f"{SEARCH}?q=x{value}").json()["query"] == f"x{value}"


def test_text_is_searched_as_it_was_sent(server: Server) -> None:
    for text in (
        "a\x00b",
        "💥",
        "%ff",
        "a&b=c;d",
        "a\tb",
        "a\r\nX-Injected: 1",
        "' OR 1=1 --",
        "%",
        "_",
        "\\",
    ):
        answer = http.get(f"{server.features_url}{SEARCH}", params={"q": f" {text} "})
        assert answer.json()["query"] == text
        assert "x-injected" not in answer.headers
    for text in ("", "+", "%20%20", "%09"):
        assert server.get(f"{SEARCH}?q={text}").json() == server.get(SEARCH).json()


def test_the_last_id_may_stand_in_the_query_as_some_event_sources_send_it(server: Server) -> None:
    answer = server.chat("one two").json()["id"]
    with EventStream(server.features_port, f"{STREAM}?completion_id={answer}") as first:
        event = next(event for event in first.events() if event.name == "feature_activation")
    for query in (f"lastEventId={event.id}", f"since={event.id}"):
        with EventStream(server.features_port, f"{STREAM}?{query}") as again:
            assert again.take(1)[0].data["token_index"] == 1
    with EventStream(server.features_port, f"{STREAM}?lastEventId=anything%20else") as other:
        assert other.take(1)[0].name == "gap"


def test_methods_of_a_path_are_told_without_a_page(server: Server) -> None:
    for path, allowed in [(STREAM, {"GET", "HEAD", "OPTIONS"}), ("/v1/features/encode", {"OPTIONS", "POST"})]:
        answer = http.request("OPTIONS", f"{server.features_url}{path}")
        assert answer.status_code == 204
        assert set(answer.headers["allow"].split(", ")) == allowed
        assert "content-type" not in answer.headers
    assert refused(server, STREAM, method="TRACE", status=405)["code"] == "method_not_allowed"
