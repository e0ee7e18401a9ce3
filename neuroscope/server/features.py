"""The features port: the stream, and the features of a given text. Labels and single features: `lookups.py`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from neuroscope.errors import PromptError, shown
from neuroscope.server import fields, wire
from neuroscope.server.body import read_json_object
from neuroscope.server.connection import ClientWatch, is_plain
from neuroscope.server.diff import add_diff
from neuroscope.server.document import add_document
from neuroscope.server.fanout import Form
from neuroscope.server.feature_socket import PATH, add_socket
from neuroscope.server.lookups import add_lookups
from neuroscope.server.note import note_bytes_past
from neuroscope.server.pages import add_pages
from neuroscope.server.problems import Problem, answer_problems, bad_request, from_prompt_error, wrong
from neuroscope.server.queries import read_query
from neuroscope.server.routing import Application
from neuroscope.server.service import Service
from neuroscope.server.sessions import add_sessions
from neuroscope.server.status import add_status, json_response
from neuroscope.server.subscribers import follow, read_completion_id, read_since, read_start
from neuroscope.server.tickets import LIFETIME_S
from neuroscope.server.views import PARAMETERS, EventWriter, View, read_view

if TYPE_CHECKING:
    from neuroscope.steps import EncodedToken

ENCODED_FIELDS = ("text", "messages", "token_ids")


def create_features_app(service: Service, *, chat_port: int) -> Flask:
    """The WSGI application of the features port, whose pages talk to `chat_port` too."""
    app = Application("neuroscope.features")
    answer_problems(app, lambda: service.loaded.pairing)
    add_status(app, service)
    add_document(app, "features")
    add_lookups(app, service)
    add_socket(app, service)
    add_sessions(app, service)
    add_diff(app, service)
    add_pages(app, chat_port)

    @app.get("/v1/features/stream")
    def stream() -> Response:
        return _subscribe(service)

    @app.get(PATH)
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

    @app.post("/v1/features/encode")
    def encode() -> Response:
        return json_response(_encode(service))

    return app


def _subscribe(service: Service) -> Response:
    """Works while the model loads too: events come when there are any."""
    service.refuse_when_stopping()
    query = read_query(*PARAMETERS, "completion_id", "since", "lastEventId")
    view = read_view(query, service.ranking, service.width)
    completion_id = read_completion_id(query)
    since = read_since(service.stream, query)
    if request.method == "HEAD":
        return Response(mimetype="text/event-stream", headers=wire.STREAM_HEADERS)
    last_id = request.headers.get("Last-Event-ID") or query.get("lastEventId") or since
    leave = service.subscribers.admit(view)
    is_chunked = request.environ["SERVER_PROTOCOL"] == "HTTP/1.1"
    form = Form(view, completion_id, wire.chunk if is_chunked else bytes)
    seat = service.fanout.seat(lambda: form)
    watch = ClientWatch(request.environ, seat.wake)
    if is_plain(request.environ):
        seat.outgoing = watch
    blocks = follow(
        service.stream,
        service.write_event,
        view,
        read_start(service.stream, last_id, completion_id),
        seat,
        only=lambda: completion_id,
        heartbeat_s=service.serve.heartbeat_s,
        is_gone=lambda: watch.gone,
    )
    response = Response(watch.timed(blocks), mimetype="text/event-stream", headers=wire.STREAM_HEADERS)
    response.call_on_close(leave)
    response.call_on_close(watch.stop)
    response.call_on_close(lambda: note_bytes_past(seat.sent_bytes))
    return response


def _encode(service: Service) -> dict[str, Any]:
    """The features of a given text or conversation, seen as the query string says; nothing is generated."""
    view = read_view(read_query(*PARAMETERS), service.ranking, service.width)
    body, loaded, writer = read_json_object(), service.loaded, service.writer
    fields.refuse_unknown(body, ENCODED_FIELDS, elsewhere=PARAMETERS)
    text = fields.string(body, "text")
    messages: Any = body.get("messages")
    ids = _token_ids(body)
    if view.align != "own":
        raise bad_request(
            "A given text was sampled from nothing: 'align' must be own.", "align", "invalid_value"
        )
    if [text, messages, ids].count(None) != 2:
        raise bad_request("Send either 'text' or 'messages', or 'token_ids'.", "text", "invalid_value")
    chat = loaded.engine.chat
    try:
        if text is not None:
            prepare = partial(chat.encode_text, text)
        elif ids is not None:
            prepare = partial(chat.encode_ids, ids)
        else:
            prepare = partial(chat.render, messages, generation=False)
        encoded = service.encode(prepare, partial(ClientWatch, request.environ))
    except PromptError as error:
        given = next(name for name in ENCODED_FIELDS if body.get(name) is not None)
        raise from_prompt_error(error, given) from error
    tokens = service.lookups.call(
        lambda: [_encoded(writer, view, n, token) for n, token in enumerate(encoded)]
    )
    return {"model": loaded.model, "layer": loaded.layer, "degraded": list(loaded.degraded), "tokens": tokens}


def _token_ids(body: fields.Fields) -> list[int] | None:
    """As the examples of a feature have them; a control token is one."""
    given: Any = body.get("token_ids")
    if given is None:
        return None
    if not isinstance(given, list) or not given:
        raise wrong("token_ids", given, "a list of token ids, with one at least")
    return [_token_id(place, token) for place, token in enumerate(given)]


def _token_id(place: int, given: Any) -> int:
    token = fields.whole(given)
    if token is None or token < 0:
        raise bad_request(
            f"'token_ids[{place}]' is {shown(given)}; it must be a whole number of 0 or more.",
            "token_ids",
            "invalid_value",
        )
    return token


def _encoded(writer: EventWriter, view: View, position: int, token: EncodedToken) -> dict[str, Any]:
    return writer.prompt_token(position, token, token.acts, view).to_wire()
