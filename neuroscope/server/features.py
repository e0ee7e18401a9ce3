"""The features port: the stream, labels and single features."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from neuroscope.errors import PromptError, shown
from neuroscope.server import fields, wire
from neuroscope.server.body import read_json_object
from neuroscope.server.connection import ClientWatch
from neuroscope.server.document import add_document
from neuroscope.server.feature_socket import open_socket
from neuroscope.server.loaded import Loaded
from neuroscope.server.page import PAGE, PAGE_HEADERS
from neuroscope.server.problems import Problem, answer_problems, bad_request, from_prompt_error
from neuroscope.server.queries import read_query, read_whole
from neuroscope.server.routing import Application
from neuroscope.server.service import Service
from neuroscope.server.status import add_status, json_response
from neuroscope.server.subscribers import follow, read_completion_id, read_since, read_start
from neuroscope.server.tickets import LIFETIME_S
from neuroscope.server.views import PARAMETERS, View, read_view

if TYPE_CHECKING:
    from neuroscope.steps import EncodedToken

MAX_FOUND = 500
EXAMPLES_SHOWN = 20
ENCODED_FIELDS = ("text", "messages")


def create_features_app(service: Service) -> Flask:
    """The WSGI application of the features port."""
    app = Application("neuroscope.features")
    answer_problems(app, lambda: service.loaded.pairing)
    add_status(app, service)
    add_document(app, "features")

    @lru_cache(maxsize=1)
    def labels_body(sae_id: str, labels: tuple[str, ...]) -> bytes:
        """Made once. Not of `Loaded`, which is kept as long as this is, and the model with it."""
        by_index = {str(index): label for index, label in enumerate(labels)}
        return wire.encode({"sae_id": sae_id, "width": len(labels), "labels": by_index})

    @app.get("/")
    def page() -> Response:
        return Response(PAGE, mimetype="text/html", headers=PAGE_HEADERS)

    @app.get("/v1/features/stream")
    def stream() -> Response:
        return _subscribe(service)

    @app.get("/v1/features/ws", websocket=True)
    def socket() -> Response:
        return open_socket(service)

    @app.get("/v1/features/ws")
    def no_socket() -> Response:
        raise Problem(426, "This is a WebSocket; /v1/features/stream has the same as server-sent events.")

    @app.post("/v1/features/ticket")
    def ticket() -> Response:
        read_query()
        if request.content_length or "Transfer-Encoding" in request.headers:
            read_json_object()  # nothing is asked in it
        issued = service.tickets.issue(request.headers.get("Origin"))
        response = json_response({"ticket": issued, "expires_in_s": LIFETIME_S})
        response.headers["Cache-Control"] = "no-store"
        return response

    @app.get("/v1/features/labels")
    def labels() -> Response:
        read_query()
        loaded = service.loaded
        return Response(labels_body(loaded.sae_id, loaded.labels), mimetype="application/json")

    @app.get("/v1/features/search")
    def search() -> Response:
        query = read_query("q", "limit")
        text = query.get("q", "").strip(" ")
        if not text:
            raise bad_request("'q' is empty; it must be a part of a label.", "q", "invalid_value")
        limit = read_whole(query, "limit", 50, 1, MAX_FOUND)
        return json_response({"query": text, "features": _search(service, text, limit)})

    @app.post("/v1/features/encode")
    def encode() -> Response:
        return json_response(_encode(service))

    @app.get("/v1/features/<int:index>")
    def feature(index: int) -> Response:
        read_query()
        if index >= service.loaded.width:
            raise Problem(404, f"There is no feature {index}; the SAE has {service.loaded.width}.")
        return json_response(_feature(service, index))

    return app


def _subscribe(service: Service) -> Response:
    """Works while the model loads too: events come when there are any."""
    if service.stopping:
        _ = service.loaded
    query = read_query(*PARAMETERS, "completion_id", "since", "lastEventId")
    view = read_view(query, service.ranking)
    completion_id = read_completion_id(query)
    since = read_since(service.stream, query)
    if request.method == "HEAD":
        return Response(mimetype="text/event-stream", headers=wire.STREAM_HEADERS)
    last_id = request.headers.get("Last-Event-ID") or query.get("lastEventId") or since
    leave = service.subscribers.admit(view)
    watch = ClientWatch(request.environ, service.stream.wake)
    blocks = follow(
        service.stream,
        service.write_event,
        view,
        read_start(service.stream, last_id, completion_id),
        completion_id=completion_id,
        heartbeat_s=service.serve.heartbeat_s,
        is_gone=lambda: watch.gone,
    )
    response = Response(watch.timed(blocks), mimetype="text/event-stream", headers=wire.STREAM_HEADERS)
    response.call_on_close(leave)
    response.call_on_close(watch.stop)
    return response


def _encode(service: Service) -> dict[str, Any]:
    """The features of a given text or conversation, seen as the query string says; nothing is generated."""
    view = read_view(read_query(*PARAMETERS), service.ranking)
    body, loaded = read_json_object(), service.loaded
    _refuse_unknown(body)
    text = fields.string(body, "text")
    messages: Any = body.get("messages")
    if view.align != "own":
        raise bad_request(
            "A given text was sampled from nothing: 'align' must be own.", "align", "invalid_value"
        )
    if (text is None) == (messages is None):
        raise bad_request("Send either 'text' or 'messages'.", "text", "invalid_value")
    chat = loaded.engine.chat
    try:
        if text is not None:
            prepare = partial(chat.encode_text, text)
        else:
            prepare = partial(chat.render, messages, generation=False)
        encoded = service.encode(prepare, partial(ClientWatch, request.environ))
    except PromptError as error:
        raise from_prompt_error(error, "messages" if text is None else "text") from error
    tokens = service.lookups.call(
        lambda: [_encoded(service, view, n, token) for n, token in enumerate(encoded)]
    )
    return {"model": loaded.model, "layer": loaded.layer, "degraded": list(loaded.degraded), "tokens": tokens}


def _refuse_unknown(body: fields.Fields) -> None:
    """No other server has this route, so no client sends extras: a field that is not known is a mistake."""
    for name in body:
        if name not in ENCODED_FIELDS:
            where = " It goes into the query string." if name in PARAMETERS else ""
            raise bad_request(
                f"There is no field {shown(name)}; the body has {' or '.join(ENCODED_FIELDS)}.{where}",
                name if len(name) <= 60 else None,
                "unknown_parameter",
            )


def _encoded(service: Service, view: View, position: int, token: EncodedToken) -> dict[str, Any]:
    return service.writer.prompt_token(position, token, token.acts, view).to_wire()


def _search(service: Service, text: str, limit: int) -> list[dict[str, Any]]:
    loaded = service.loaded
    results = loaded.results
    if results is not None and service.lookups.call(lambda: results.has_labels):
        return service.lookups.call(results.search, text, limit)
    found = (i for i, label in enumerate(loaded.labels) if text.lower() in label.lower())
    return [{"feature": i, "label": loaded.labels[i]} for i, _ in zip(found, range(limit), strict=False)]


def _feature(service: Service, index: int) -> dict[str, Any]:
    loaded = service.loaded
    known = _known(service, loaded, index) if loaded.results is not None else {}
    return {
        "feature": index,
        "label": loaded.labels[index],
        "sae_id": loaded.sae_id,
        "layer": loaded.layer,
        "neuronpedia": _neuronpedia_url(loaded, index),
        "degraded": list(loaded.degraded),
        **known,
    }


def _known(service: Service, loaded: Loaded, index: int) -> dict[str, Any]:
    results = loaded.results
    assert results is not None

    def look_up() -> dict[str, Any]:
        feature = results.feature(index) or {}
        return {**feature, "examples": results.examples(index, "top", EXAMPLES_SHOWN)}

    known = service.lookups.call(look_up)
    return {
        **known,
        "label": loaded.labels[index],
    }  # the label the stream shows, a numeric one where there is none


def _neuronpedia_url(loaded: Loaded, index: int) -> str | None:
    if loaded.neuronpedia is None:
        return None
    model, sae = loaded.neuronpedia
    return f"https://www.neuronpedia.org/{model}/{sae}/{index}"
