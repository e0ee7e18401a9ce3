"""The OpenAPI documents beside the code: what one says the other does, and all of it is described."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from documented import DOCUMENTS, OPERATIONS, PORTS, Operation, operation, places, resolved, schema
from serving import ROOT, write_config

from neuroscope import settings
from neuroscope.autointerp.labeler import State
from neuroscope.diff import CHANGE
from neuroscope.events import ActiveFeature, FeatureEvent, PromptToken
from neuroscope.manifest import package_version
from neuroscope.models.conversation import ROLES
from neuroscope.ranking import FILTERS, Ranking
from neuroscope.recording import IDENTIFIER, MAX_TITLE, Recording
from neuroscope.server import (
    body,
    catalogue,
    chat_request,
    diff,
    feature_page,
    features,
    sessions,
    subscribers,
    tickets,
    views,
)
from neuroscope.server.chat import create_chat_app
from neuroscope.server.document import LOADER
from neuroscope.server.feature_socket import SETTINGS
from neuroscope.server.features import create_features_app
from neuroscope.server.problems import CODES
from neuroscope.server.service import Service
from neuroscope.sessions import SUMMARY
from neuroscope.store.schema import WINDOW

STREAM = operation("features", "get", "/v1/features/stream")
SOCKET = operation("features", "get", "/v1/features/ws")
ENCODE = operation("features", "post", "/v1/features/encode")
CHAT = operation("chat", "post", "/v1/chat/completions")
_EXAMPLE = re.compile(r"/(example|examples/\w+/value)(/|$)")


@pytest.mark.parametrize(
    ("port", "create"),
    [("chat", create_chat_app), ("features", partial(create_features_app, chat_port=8080))],
)
def test_every_route_is_documented_and_every_documented_path_is_a_route(
    tmp_path: Path, port: str, create: Callable[[Service], Any]
) -> None:
    serve = settings.load(config=write_config(tmp_path)).serve
    rules = create(Service(serve, Ranking())).url_map.iter_rules()
    routes = {
        f"{method} {_as_documented(rule.rule)}"
        for rule in rules
        for method in (rule.methods or {"GET"}) - {"HEAD", "OPTIONS"}
    }
    described = {f"{op.method.upper()} {op.path}" for op in OPERATIONS if op.port == port}
    assert not routes - described, f"openapi/{port}.yaml (or shared.yaml) lacks {sorted(routes - described)}"
    assert not described - routes, f"openapi/{port}.yaml describes what no route is: {described - routes}"


def test_either_yaml_reader_reads_the_same() -> None:
    """PyYAML has one in C, which accepts more, where its wheel was built with it."""
    for name in ("shared", *PORTS):
        text = (ROOT / f"neuroscope/server/openapi/{name}.yaml").read_text(encoding="utf-8")
        assert yaml.load(text, yaml.SafeLoader) == yaml.load(text, LOADER)


def _as_documented(rule: str) -> str:
    """`/v1/models/<path:model>` as `/v1/models/{model}`."""
    return re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", rule)


def _parameter(asked: Operation, name: str) -> dict[str, Any]:
    (found,) = [p for p in asked.parameters if p["name"] == name]
    return resolved(asked.port, found["schema"])


def test_limits_are_those_of_the_code() -> None:
    for asked in (STREAM, SOCKET, ENCODE):
        assert _parameter(asked, "top_k")["maximum"] == views.MAX_TOP_K
        assert _parameter(asked, "features")["maxItems"] == views.MAX_LISTED_FEATURES
        assert _parameter(asked, "filter")["enum"] == list(FILTERS)
        assert {p["name"] for p in asked.parameters} >= set(views.PARAMETERS)
    assert schema("features", "TopFeatures")["maxItems"] == views.MAX_TOP_K
    assert _parameter(STREAM, "align")["enum"] == list(views.ALIGNMENTS)
    assert _parameter(STREAM, "completion_id")["pattern"] == f"^{subscribers.COMPLETION_ID.pattern}$"
    opened = {op.path for op in OPERATIONS if any(p["name"] == tickets.PARAMETER for p in op.parameters)}
    assert opened == set(tickets.PATHS)
    issued = schema("features", "IssuedTicket")["properties"]
    assert issued["expires_in_s"]["const"] == tickets.LIFETIME_S
    configure = schema("features", "Configure")["properties"]
    assert set(configure) == {"type", *SETTINGS}
    assert set(schema("features", "Settings")["properties"]) == set(SETTINGS)
    assert configure["top_k"]["maximum"] == views.MAX_TOP_K
    assert configure["features"]["maxItems"] == views.MAX_LISTED_FEATURES
    assert configure["align"]["enum"] == [*views.ALIGNMENTS, None]
    assert configure["completion_id"]["pattern"] == f"^{subscribers.COMPLETION_ID.pattern}$"
    window = schema("features", "Example")["properties"]["window"]
    assert (window["minItems"], window["maxItems"]) == (WINDOW, WINDOW)
    assert set(schema("features", "EncodeRequest")["properties"]) == set(features.ENCODED_FIELDS)


def test_limits_of_lookups_are_those_of_the_code() -> None:
    search = operation("features", "get", "/v1/features/search")
    found = schema("features", "Found")["properties"]
    for limit in (_parameter(search, "limit"), found["limit"]):
        assert limit["maximum"] == catalogue.MAX_FOUND
    assert found["features"]["maxItems"] == catalogue.MAX_FOUND
    assert _parameter(search, "offset")["maximum"] == catalogue.MAX_OFFSET
    for sort in (_parameter(search, "sort"), found["sort"]):
        assert sort["enum"] == list(catalogue.SORTS)
    page = operation("features", "get", "/v1/features/{index}")
    n = _parameter(page, "n")
    assert (n["default"], n["maximum"]) == (feature_page.EXAMPLES_SHOWN, feature_page.MOST_EXAMPLES)
    kinds = list(feature_page.KINDS)
    assert _parameter(page, "examples")["oneOf"][0]["items"]["enum"] == kinds
    assert schema("features", "Example")["properties"]["kind"]["enum"] == kinds
    most = schema("features", "Feature")["properties"]["examples"]["maxItems"]
    assert most == len(kinds) * feature_page.MOST_EXAMPLES
    states = schema("features", "LabelState")["properties"]["state"]["enum"]
    assert sorted(states) == sorted(get_args(State))


def test_limits_of_sessions_are_those_of_the_code() -> None:
    listed = operation("features", "get", "/v1/sessions")
    found = schema("features", "SessionList")["properties"]
    for limit in (_parameter(listed, "limit"), found["limit"]):
        assert limit["maximum"] == sessions.MAX_LISTED
    assert found["sessions"]["maxItems"] == sessions.MAX_LISTED
    assert _parameter(listed, "offset")["maximum"] == sessions.MAX_OFFSET
    names = {"id", "url", *SUMMARY, "bytes", "error"}
    assert set(schema("features", "ListedSession")["properties"]) == names
    saved = schema("features", "SaveRequest")["properties"]
    assert set(saved) == set(sessions.SAVED_FIELDS)
    assert saved["title"]["maxLength"] == MAX_TITLE
    recorded = schema("features", "Recording")["properties"]
    assert set(recorded) == {"format", "version", *(field.name for field in fields(Recording))}
    one = operation("features", "get", "/v1/sessions/{id}")
    assert _parameter(one, "id")["pattern"] == recorded["id"]["pattern"] == f"^{IDENTIFIER.pattern}$"
    compared = operation("features", "post", "/v1/diff")
    assert f"{diff.MAX_BYTES:,} bytes" in compared.responses[413]["description"]
    asked = schema("features", "DiffRequest")["properties"]
    assert set(asked) == set(diff.DIFF_FIELDS)
    assert set(schema("features", "DiffSide")["properties"]) == set(diff.SIDE_FIELDS)
    assert asked["top_k"]["maximum"] == views.MAX_TOP_K
    told = schema("features", "Diff")["properties"]
    assert told["change_threshold"]["const"] == CHANGE


def test_limits_of_questions_are_those_of_the_code() -> None:
    sampling = schema("chat", "Sampling")["properties"]
    assert sampling["stop"]["oneOf"][2]["maxItems"] == chat_request.MAX_STOPS
    assert (sampling["seed"]["minimum"], sampling["seed"]["maximum"]) == chat_request.SEEDS
    logprobs = {"ChatRequest": "top_logprobs", "CompletionRequest": "logprobs"}
    for name, field in logprobs.items():
        described = schema("chat", name)["allOf"][1]["properties"][field]
        assert described["maximum"] == chat_request.MAX_TOP_LOGPROBS
    for port in PORTS:
        assert schema(port, "Message")["properties"]["role"]["enum"] == list(ROLES)
        assert schema(port, "Filter")["enum"] == list(FILTERS)
    assert f"{body.MAX_BYTES:,} bytes" in CHAT.responses[413]["description"]


def test_events_have_the_fields_of_their_classes() -> None:
    described = STREAM.events()
    kinds = {kind.event: kind for kind in get_args(FeatureEvent)}
    assert set(described) == {*kinds, "gap", "shutdown"}
    for kind in (*kinds.values(), ActiveFeature, PromptToken):
        event = schema("features", kind.__name__)
        names = {field.name for field in fields(kind)}
        assert set(event["required"]) == set(event["properties"]) == names
    messages = schema("features", "ServerMessage")["oneOf"]
    over_socket = {one["properties"]["event"]["const"]: one["properties"]["data"] for one in messages}
    own = {name: over_socket.pop(name) for name in ("settings", "error")}
    assert own
    assert over_socket == described


def test_every_code_of_an_error_is_named() -> None:
    """A program that looks at `code` finds it in the document."""
    told = "".join((ROOT / f"neuroscope/server/openapi/{n}.yaml").read_text() for n in ("shared", *PORTS))
    codes = {code for path in (ROOT / "neuroscope/server").glob("*.py") for code in _codes(path)}
    assert {"invalid_value", "engine_hung", "queue_full"} <= codes
    lacking = sorted(code for code in codes | set(CODES.values()) if f"`{code}`" not in told)
    assert not lacking, f"openapi/*.yaml names no {lacking}"


def _codes(path: Path) -> Iterator[str]:
    """What the calls in a module give as `code`, or in its place."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call):
            given = [word.value for word in call.keywords if word.arg == "code"]
            if isinstance(call.func, ast.Name) and call.func.id == "bad_request":
                given += call.args[2:]
            yield from (one.value for one in given if isinstance(one, ast.Constant) and one.value)


@pytest.mark.parametrize("port", PORTS)
def test_everything_is_described_and_used(port: str) -> None:
    document = DOCUMENTS[port]
    assert document["info"]["version"] == package_version()
    assert [server["url"] for server in document["servers"]] == ["/"], "no host of any machine"
    tags = {tag["name"] for tag in document["tags"]}
    operations = [op.definition for op in OPERATIONS if op.port == port]
    assert len({op["operationId"] for op in operations}) == len(operations)
    for op in operations:
        assert op["summary"]
        assert op["description"]
        assert set(op["tags"]) <= tags
    parts = [(place, node) for place, node in places(document) if not _EXAMPLE.search(place)]
    properties = [(f"{place}/{name}", p) for place, n in parts for name, p in _named(n, "properties")]
    inner = [p for p in properties if not re.search(r"/(if|then|else|oneOf/\d+)/properties/", f"{p[0]}/")]
    described = [*inner, *_each(document, "parameters"), *_each(document, "responses")]
    described += [(place, node) for place, node in _each(document, "schemas") if "allOf" not in node]
    bare = [place for place, node in described if "$ref" not in node and not node.get("description")]
    assert not bare, f"without a description: {bare}"
    used = {node["$ref"] for _, node in parts if "$ref" in node}
    kinds = ("schemas", "responses", "parameters", "headers")
    known = {f"#/components/{kind}/{name}" for kind in kinds for name in document["components"].get(kind, {})}
    assert used == known, "components that nothing refers to, or references to none"


def _named(node: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    found = node.get(key)
    return [] if not isinstance(found, dict) else [(f"{key}/{n}", v) for n, v in found.items()]


def _each(document: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    return _named(document["components"], kind)


@pytest.mark.parametrize("port", PORTS)
def test_answers_are_described_whole(port: str) -> None:
    """A field of an answer that the document does not know is a fault of one of the two."""
    asked = {"Sampling", "ChatRequest", "CompletionRequest", "Message", "TextPart"}
    answered = {n: s for n, s in DOCUMENTS[port]["components"]["schemas"].items() if n not in asked}
    open_ended = [
        f"{name}{place[1:]}"
        for name, described in answered.items()
        for place, node in places(described)
        if "object" in node.get("type", ()) and "additionalProperties" not in node
    ]
    assert not open_ended
    assert len(answered) > 8
