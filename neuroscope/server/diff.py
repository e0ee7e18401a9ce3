"""POST /v1/diff: what differs between the features of two recordings, texts or conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from flask import Flask, Response, request

from neuroscope.diff import OtherFeaturesError, Side, compare, side_of
from neuroscope.errors import ArtefactError, PromptError
from neuroscope.ranking import FILTERS, Ranking
from neuroscope.recording import check_recording, identity
from neuroscope.server import fields, wire
from neuroscope.server.body import read_json_object
from neuroscope.server.connection import ClientWatch
from neuroscope.server.problems import Problem, bad_request, from_prompt_error, wrong
from neuroscope.server.queries import read_query
from neuroscope.server.recorder import about_features, prompt_row
from neuroscope.server.service import Service
from neuroscope.server.sessions import ask, clean
from neuroscope.server.views import MAX_TOP_K

DIFF_FIELDS = ("a", "b", "filter", "threshold", "top_k", "min_activation")
SIDE_FIELDS = ("session", "text", "messages", "recording")
MAX_BYTES = 16_000_000
"""Of a body: two recordings of thousands of tokens. A longer one can be saved, and named by its session."""
DEFAULTS = Ranking("frequency_surprise", 0.5, 50)
"""The threshold is the server's own."""
TITLE = 60

MakeSide = Callable[[], Side]


def add_diff(app: Flask, service: Service) -> None:
    """Add the route to `app`."""

    @app.post("/v1/diff")
    def diff() -> Response:
        read_query()
        body = read_json_object(at_most=MAX_BYTES, parse=service.lookups.call)
        fields.refuse_unknown(body, DIFF_FIELDS)
        ranking = _ranking(body, service.ranking)
        wanted = [_wanted(body, name) for name in ("a", "b")]
        a, b = (_side(service, *one) for one in wanted)
        try:
            found = service.lookups.call(lambda: wire.encode(compare(a(), b(), ranking)))
        except OtherFeaturesError as error:
            raise bad_request(str(error), code="other_features") from error
        return Response(found, mimetype="application/json")


def _ranking(body: Mapping[str, Any], own: Ranking) -> Ranking:
    chosen = fields.string(body, "filter") or DEFAULTS.filter
    if chosen not in FILTERS:
        raise wrong("filter", chosen, f"one of {', '.join(FILTERS)}")
    top_k = fields.integer(body, "top_k", 1, MAX_TOP_K)
    return replace(
        DEFAULTS,
        filter=chosen,
        threshold=fields.number(body, "threshold", 0, 1, own.threshold),
        top_k=DEFAULTS.top_k if top_k is None else top_k,
        min_activation=fields.number(body, "min_activation", 0, 1e9, 0),
    )


def _wanted(body: Mapping[str, Any], name: str) -> tuple[str, str, Any]:
    """Name, kind and content of a side."""
    given = body.get(name)
    if not isinstance(given, dict):
        raise wrong(name, given, f"an object with one of {', '.join(SIDE_FIELDS)}")
    fields.refuse_unknown(given, SIDE_FIELDS)
    kinds = [kind for kind in SIDE_FIELDS if given.get(kind) is not None]
    if len(kinds) != 1:
        raise bad_request(
            f"'{name}' has {len(kinds)} of {', '.join(SIDE_FIELDS)}; send one of them.", name, "invalid_value"
        )
    if kinds[0] in ("session", "text"):
        fields.string(given, kinds[0])
    return name, kinds[0], given[kinds[0]]


def _side(service: Service, name: str, kind: str, given: Any) -> MakeSide:
    """What makes the side in the lookups thread; what it needs of the model is done by then."""
    if kind == "session":
        recording = ask(service, lambda kept: kept.read(given))
        return lambda: side_of(recording)
    if kind == "recording":
        try:
            checked = service.lookups.call(lambda: check_recording(given, of=f"'{name}.recording'"))
        except ArtefactError as error:
            raise bad_request(str(error), f"{name}.recording", "invalid_recording") from error
        return lambda: side_of(checked)
    return _encoded(service, name, kind, given)


def _encoded(service: Service, name: str, kind: str, given: Any) -> MakeSide:
    loaded = service.loaded
    chat = loaded.engine.chat
    if kind == "text":
        prepare, title = partial(chat.encode_text, given), given
    else:
        prepare, title = partial(chat.render, given, generation=False), _last_text(given)
    try:
        tokens = service.encode(prepare, partial(ClientWatch, request.environ))
    except PromptError as error:
        problem = from_prompt_error(error, kind)
        raise Problem(
            problem.status, problem.message, param=f"{name}.{problem.param}", code=problem.code
        ) from error

    def make() -> Side:
        rows = [{**prompt_row(n, token, loaded.stats), "place": "prompt"} for n, token in enumerate(tokens)]
        short = " ".join(clean(title).split())
        shown = short if len(short) <= TITLE else f"{short[: TITLE - 3]}..."
        return Side(shown, rows, about_features(rows, loaded), identity(loaded.fingerprint, loaded.model))

    return make


def _last_text(messages: Any) -> str:
    """The last message's text, which need not be one yet."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else ""
