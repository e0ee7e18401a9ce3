"""The OpenAPI documents: what they say is what the servers do, and requests made from them find no fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
import requests
import schemathesis
from documented import DOCUMENTS, OPERATIONS, PORTS, Operation, operation, schema, sse_events, validate
from hypothesis import HealthCheck, Phase, given, settings
from made_recordings import recording
from raw_websocket import RawWebSocket
from schemathesis import Case, GenerationMode
from schemathesis.checks import negative_data_rejection, not_a_server_error, positive_data_acceptance
from scripted_results import write_results
from serving import EventStream, Server, http, serving

from neuroscope.ranking import Ranking
from neuroscope.server.diff import MAX_BYTES as MAX_DIFF_BYTES
from neuroscope.server.fanout import Fanout, Form
from neuroscope.server.stream import FeatureStream
from neuroscope.server.subscribers import follow, read_start
from neuroscope.server.views import View

FOR_PEOPLE = ("/feature/{index}", "/session/{name}", "/static/{name}")
"""Pages and their files: what opens is said by tests/browser, and by `test_gate_everywhere.py`."""
ASKED = [op for op in OPERATIONS if op.path not in FOR_PEOPLE]
STREAM = operation("features", "get", "/v1/features/stream")
SOCKET = operation("features", "get", "/v1/features/ws")
CHAT = operation("chat", "post", "/v1/chat/completions")
TEXT = operation("chat", "post", "/v1/completions")
SAVE = operation("features", "post", "/v1/sessions")
DIFF = operation("features", "post", "/v1/diff")
EXAMPLE_ID = SAVE.bodies()[0]["completion_id"]
HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A scripted server with whole results: what is answered where there is something to answer."""
    folder = tmp_path_factory.mktemp("openapi-known")
    write_results(folder / "results/tiny")
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}) as running:
        yield running
    assert "Traceback" not in running.output


@pytest.fixture(scope="module")
def tiny(saying: Server) -> Server:
    """A real engine, without results."""
    return saying


def url(server: Server, port: str) -> str:
    return server.chat_url if port == "chat" else server.features_url


def test_both_ports_serve_their_document(server: Server) -> None:
    for port in PORTS:
        response = http.get(f"{url(server, port)}/openapi.json")
        assert response.headers["content-type"] == "application/json"
        assert response.json() == DOCUMENTS[port]
        schemathesis.openapi.from_dict(response.json()).validate()  # as OpenAPI's own schema has it


def test_an_unknown_parameter_is_refused_with_those_that_are_documented(server: Server) -> None:
    asked_about = [op for op in OPERATIONS if op.path.startswith("/v1/features/")]
    for op in asked_about:
        path = f"{op.filled_path()}?_=1700000000&topk=5"
        headers = HANDSHAKE if op == SOCKET else None
        refused = http.request(
            op.method, f"{server.features_url}{path}", json=op.bodies()[0], headers=headers
        )
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert (error["param"], error["code"]) == ("topk", "unknown_parameter")
        listed = error["message"].partition(" has ")[2].removesuffix(".").split(", ")
        assert set(listed) == (op.query_names() or {"none"})
    assert len(asked_about) >= 7


def _ask(server: Server, op: Operation, **more: Any) -> httpx.Response:
    """A request as the document's examples have it, but for `more`; of an endless stream only the head is read."""
    asked = {"json": op.bodies()[0], "path": op.filled_path(model="scripted"), **more}
    _make_there(server, op, asked)
    asked["params"] = asked.get("params") or None
    address = f"{url(server, op.port)}{asked.pop('path')}"
    with http.stream(op.method.upper(), address, **asked) as response:
        if response.status_code != 101 and (response.status_code, op) != (200, STREAM):
            response.read()
        return response


def _make_there(server: Server, op: Operation, asked: dict[str, Any]) -> None:
    """What the examples name: the recording of the document, and an answer, whose id is only known by then."""
    if "/v1/sessions/{id}" in op.path:
        folder = server.log.parent / "results/tiny/sessions"
        folder.mkdir(parents=True, exist_ok=True)
        name = op.parameters[0]["example"]
        (folder / f"{name}.json").write_text(recording(id=name).to_json())
    if op == SAVE and asked.get("json") and asked["json"].get("completion_id") == EXAMPLE_ID:
        asked["json"] = {**asked["json"], "completion_id": server.chat("a b").json()["id"]}


NOT_ANSWERED = {"/v1/responses": 404, SOCKET.path: 426}
"""Paths that answer an ordinary request with something else than 200."""


@pytest.mark.parametrize("op", ASKED, ids=str)
def test_examples_work_as_they_stand(server: Server, op: Operation) -> None:
    expected = 201 if op == SAVE else NOT_ANSWERED.get(op.path, 200)
    for example in op.bodies():
        response = _ask(server, op, json=example, params=op.examples())
        assert response.status_code == expected, response.text
    if op == SOCKET:
        assert _ask(server, op, headers=HANDSHAKE, params=op.examples()).status_code == 101
    for response in op.responses.values():
        for media in response.get("content", {}).values():
            examples = [each["value"] for each in media.get("examples", {}).values()]
            for example in [*examples, media["example"]] if "example" in media else examples:
                validate(op.port, media["schema"], example)


LONG = "x" * 8200
PROVOKED: dict[int, dict[str, Any]] = {
    101: {"headers": HANDSHAKE},
    200: {},
    201: {},
    304: {"headers": {"If-None-Match": "*"}},
    400: {"params": {"nonsense": "1"}},
    403: {"headers": {"Origin": "http://evil.example"}},
    412: {"headers": {"If-Match": '"other"'}},
    413: {"json": {"text": "x" * 1_000_001}},
    414: {"params": {"_": LONG}},
    415: {"json": None, "content": "{}", "headers": {"Content-Type": "text/plain"}},
    431: {"headers": {"X-Long": LONG}},
}
"""A status and what is changed in a request to get it."""


PROVOKED_OTHERWISE: dict[tuple[Operation, int], dict[str, Any]] = {
    (SAVE, 404): {"completion_id": "chatcmpl-nobody"},
    (DIFF, 404): {"a": {"session": "nothing"}, "b": {"text": "a"}},
    (DIFF, 413): {"a": {"text": "x" * MAX_DIFF_BYTES}, "b": {"text": "a"}},
}
"""Bodies."""


def _provoked(op: Operation, status: int) -> dict[str, Any]:
    if (op, status) in PROVOKED_OTHERWISE:
        return {"json": PROVOKED_OTHERWISE[op, status]}
    if status == 404 and op.path not in NOT_ANSWERED:
        missing = {"json": {**op.bodies()[0], "model": "gpt-4"}} if op.bodies()[0] else {}
        return {"path": op.filled_path(model="gpt/4", index="999999", id="nothing"), **missing}
    if status == 400 and op.port == "chat":
        return {"json": {}}
    if status == 400 and op == SOCKET:
        return PROVOKED[400] | PROVOKED[101]
    return {} if status == NOT_ANSWERED.get(op.path) else PROVOKED[status]


ELSEWHERE = {401, 408, 409, 410, 422, 429, 500, 503, 507}
"""Statuses that need more than one request: `test_gate`, `test_refusals`, `test_queue`, `test_sessions`."""


@pytest.mark.parametrize("op", ASKED, ids=str)
def test_each_documented_status_occurs(server: Server, op: Operation) -> None:
    for status in sorted(set(op.responses) - ELSEWHERE):
        response = _ask(server, op, **_provoked(op, status))
        assert response.status_code == status, (status, response.text)
        if status >= 400:
            validate(op.port, op.responses[status]["content"]["application/json"]["schema"], response.json())


FUZZED = ("scripted chat", "known features", "tiny chat", "tiny features")
"""Server and port."""
MADE_UP = 5
"""Requests of each kind at random for each operation, beside those at every limit."""
AT_EVERY_LIMIT = {"scripted chat", "known features"}
"""The other server of the port reads the same requests."""
NOT_IN_A_SCHEMA = {"context_length_exceeded", "invalid_prompt", "invalid_recording", "other_features"}
"""Refusals of what a schema cannot say: a text's length in tokens, what the model's template accepts, whether the
numbers of a recording agree."""
LONGEST_SECONDS = 60.0
LONGEST_ANSWER = 4


@pytest.fixture(scope="module")
def schemas(server: Server, known: Server, tiny: Server) -> dict[str, Any]:
    """The documents as schemathesis reads them from the running servers."""
    servers = {"scripted": server, "known": known, "tiny": tiny}
    urls = {name: url(servers[name.split()[0]], name.split()[1]) for name in FUZZED}
    return {name: schemathesis.openapi.from_url(f"{base}/openapi.json") for name, base in urls.items()}


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        yield opened


NOT_KNOWN_TO_A_SCHEMA = ("logit_bias", "features", "token_ids")
"""What may be wrong for this model or SAE alone: its vocabulary and its width are in no document."""


def _made_up_for(name: str) -> list[Operation]:
    return [op for op in ASKED if op.port == name.split()[1]]


@pytest.mark.parametrize(("name", "op"), [(n, op) for n in FUZZED for op in _made_up_for(n)], ids=str)
def test_requests_made_from_the_document_find_no_fault(
    schemas: dict[str, Any], session: requests.Session, name: str, op: Operation
) -> None:
    """Valid and invalid requests, those at every limit and some at random, always the same."""
    described = schemas[name]
    asked = described[op.path][op.method]
    count = 0

    def check(case: Case) -> None:
        nonlocal count
        count += 1
        _check(case, op, session)

    for mode in GenerationMode:
        generation = described.config.generation
        at_limits = described.iter_coverage_cases(
            asked, generation_modes=[mode], generation_config=generation
        )
        for case in at_limits if name in AT_EVERY_LIMIT else ():
            check(case)
        if _can_vary(op, mode):
            _deterministic(MADE_UP)(given(case=asked.as_strategy(generation_mode=mode))(check))()
    assert count >= (2 * MADE_UP if _can_vary(op, GenerationMode.NEGATIVE) else 0)


def _can_vary(op: Operation, mode: GenerationMode) -> bool:
    """Whether there are several requests, or wrong ones; every string is a name of a model, though of none here."""
    if "requestBody" in op.definition or not op.parameters:
        return "requestBody" in op.definition
    return mode.is_positive or any(p["schema"].get("type") != "string" for p in op.parameters)


def _deterministic(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def _check(case: Case, op: Operation, session: requests.Session) -> None:
    response = _sent(case, session)
    asked = f"{response.request.method} {response.request.url} {response.request.body!r}"
    kind = response.headers.get("content-type", "")
    assert re.fullmatch("req_[0-9a-f]{24}", response.headers["x-request-id"]), asked
    assert response.elapsed.total_seconds() < LONGEST_SECONDS, asked
    if response.status_code >= 400 and response.request.method != "HEAD":
        assert kind == "application/json", asked
        validate(op.port, schema(op.port, "ErrorResponse"), response.json())
        error = response.json()["error"]
        if error["code"] in NOT_IN_A_SCHEMA or error["param"] in NOT_KNOWN_TO_A_SCHEMA:
            return
    if kind.startswith("text/event-stream") and op != STREAM:
        _check_chunks(op, response.text)
    excluded = [] if _must_be_refused(case, response) else [negative_data_rejection]
    if response.status_code == 101:
        excluded += [positive_data_acceptance, not_a_server_error]  # which know no status below 200
    case.validate_response(response, excluded_checks=excluded)


def _sent(case: Case, session: requests.Session) -> requests.Response:
    """The answer, of an endless stream its first block. Answers are kept short, and no model is asked for in vain."""
    asked = case.as_transport_kwargs()
    if case.path == SOCKET.path:
        return _shaken_hands(asked)
    body = asked.get("json")
    if isinstance(body, dict) and "/completions" in case.path:
        if isinstance(body.get("model"), str):
            body = {name: value for name, value in body.items() if name != "model"}
        limits = [n for n in ("max_tokens", "max_completion_tokens") if body.get(n) is not None]
        shortened = {n: LONGEST_ANSWER for n in limits or ["max_tokens"] if _is_long(body.get(n))}
        asked["json"] = body | shortened
    response = session.request(**asked, stream=True, timeout=LONGEST_SECONDS, allow_redirects=False)
    if case.path == STREAM.path and response.status_code == 200:
        response._content = next(response.iter_content(None), b"")
        response._content_consumed = True
        response.close()
    return response


def _shaken_hands(asked: dict[str, Any]) -> requests.Response:
    """The answer to a handshake, on a connection of its own: after it no request can follow."""
    headers = {**asked.pop("headers"), **HANDSHAKE}
    with requests.Session() as session:
        response = session.request(
            **asked, headers=headers, stream=True, timeout=LONGEST_SECONDS, allow_redirects=False
        )
        if response.status_code == 101:
            response._content, response._content_consumed = b"", True
        _ = response.content
        response.close()
    return response


def _is_long(limit: Any) -> bool:
    return limit is None or (isinstance(limit, int | float) and limit > LONGEST_ANSWER)


def _must_be_refused(case: Case, response: requests.Response) -> bool:
    """Whether an invalid value is still one in the URL, where {} is nothing and 1 a list of one.

    A URL that is too long is refused before it is looked at.
    """
    query = case.query or {}
    lost = any(isinstance(value, dict | list) and not value for value in query.values())
    return not (lost or isinstance(query.get("features"), int) or response.status_code == 414)


def _check_chunks(op: Operation, text: str) -> None:
    """Chunks as described, then `[DONE]`."""
    *chunks, last = sse_events(text)
    assert last == ("message", "[DONE]")
    for name, data in chunks:
        validate(op.port, op.events()[name], json.loads(data))


# What streams and sockets send.


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream_options": {"include_usage": True}},
        {"logprobs": True, "top_logprobs": 2},
        {"stop": "e"},
        {"max_tokens": 1},
        {"neuroscope": {"prompt_features": True}},
    ],
    ids=str,
)
def test_streamed_chunks_are_as_described(server: Server, tiny: Server, more: dict[str, Any]) -> None:
    for asked in (server, tiny):
        options = {"max_tokens": 8, "stream": True, "seed": 1, **more}
        streamed = asked.chat("[chars] héllo 💥 there", **options)
        _check_chunks(CHAT, streamed.text)
        if "logprobs" in options:
            options["logprobs"] = options.pop("top_logprobs")
        text = http.post(f"{asked.chat_url}{TEXT.path}", json={"prompt": "[chars] héllo 💥", **options})
        _check_chunks(TEXT, text.text)


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}, {"max_tokens": 2}], ids=str)
def test_a_repeated_prompt_is_as_described(server: Server, tiny: Server, more: dict[str, Any]) -> None:
    options = {"prompt": "héllo there", "echo": True, "max_tokens": 0, **more}
    for asked in (server, tiny):
        whole = http.post(f"{asked.chat_url}{TEXT.path}", json=options)
        validate("chat", TEXT.responses[200]["content"]["application/json"]["schema"], whole.json())
        _check_chunks(TEXT, http.post(f"{asked.chat_url}{TEXT.path}", json={**options, "stream": True}).text)


def test_a_failure_in_a_stream_is_as_described(server: Server) -> None:
    _check_chunks(CHAT, server.chat("[fail=1] a b c", stream=True).text)


def _check_event(name: str, data: Any) -> None:
    validate("features", STREAM.events()[name], data)


def test_events_are_as_described(server: Server, known: Server, tiny: Server) -> None:
    for asked, query in [
        (server, ""),
        (tiny, "?filter=none&top_k=1000"),
        (known, "?filter=surprise&align=producer"),
    ]:
        with EventStream(asked.features_port, f"/v1/features/stream{query}") as subscriber:
            next(subscriber.blocks())
            asked.chat("one two three", max_tokens=4, seed=1, neuroscope={"prompt_features": True})
            events = subscriber.until("generation_complete")
        assert {event.name for event in events} > {"prompt_activation", "feature_activation"}
        for event in events:
            _check_event(event.name, event.data)


def test_messages_are_as_described(server: Server) -> None:
    described = SOCKET.responses[101]["x-messages"]
    change = {"type": "configure", "top_k": 2, "features": [4, 5], "filter": None}
    validate("features", described["client"], change)
    with RawWebSocket(server.features_port, f"{SOCKET.path}?since=abcdef-1") as client:
        heard = client.until("settings")
        client.say(**change)
        client.say(type="configure", top_k=0)
        heard += client.until("error")
        server.chat("one two", neuroscope={"prompt_features": True})
        heard += client.until("generation_complete")
        server.chat("[fail=0] a")
        heard += client.until("generation_error")
    names = {message["event"] for message in heard}
    assert names == set(STREAM.events()) - {"shutdown"} | {"settings", "error"}
    for message in heard:
        validate("features", described["server"], message)


def test_events_of_what_goes_wrong_are_as_described(server: Server) -> None:
    with EventStream(server.features_port, "/v1/features/stream?since=abcdef-1") as subscriber:
        server.chat("[fail=0] a")
        gap, *_, failure = subscriber.until("generation_error")
    assert (gap.name, failure.name) == ("gap", "generation_error")
    _check_event(gap.name, gap.data)
    _check_event(failure.name, failure.data)


def test_the_last_event_is_as_described() -> None:
    stream = FeatureStream(4)
    stream.close()
    start = read_start(stream, None, None)
    blocks = follow(
        stream,
        lambda entry, view: b"",
        View(Ranking()),
        start,
        Fanout(stream, lambda entry, view: b"").seat(lambda: Form(View(Ranking()), None, bytes), None),
        only=lambda: None,
        heartbeat_s=1,
        is_gone=lambda: False,
    )
    ((name, data),) = sse_events(b"".join(blocks).decode())
    assert name == "shutdown"
    _check_event(name, json.loads(data))
