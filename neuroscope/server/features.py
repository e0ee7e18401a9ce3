"""The features port: the stream, labels and single features."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from flask import Flask, Response, request

from neuroscope.server import wire
from neuroscope.server.connection import ClientWatch
from neuroscope.server.loaded import Loaded
from neuroscope.server.page import PAGE, PAGE_HEADERS
from neuroscope.server.problems import Problem, answer_problems, bad_request
from neuroscope.server.service import Service
from neuroscope.server.status import add_status, json_response
from neuroscope.server.subscribers import follow, read_start
from neuroscope.server.views import read_view, read_whole

MAX_FOUND = 500
EXAMPLES_SHOWN = 20


def create_features_app(service: Service) -> Flask:
    """The WSGI application of the features port."""
    app = Flask("neuroscope.features", static_folder=None)
    answer_problems(app)
    add_status(app, service)

    @lru_cache(maxsize=1)
    def labels_body(loaded: Loaded) -> bytes:
        labels = {str(index): label for index, label in enumerate(loaded.labels)}
        return wire.encode({"sae_id": loaded.sae_id, "width": loaded.width, "labels": labels})

    @app.get("/")
    def page() -> Response:
        return Response(PAGE, mimetype="text/html", headers=PAGE_HEADERS)

    @app.get("/v1/features/stream")
    def stream() -> Response:
        return _subscribe(service)

    @app.get("/v1/features/labels")
    def labels() -> Response:
        return Response(labels_body(service.loaded), mimetype="application/json")

    @app.get("/v1/features/search")
    def search() -> Response:
        text = request.args.get("q", "").strip()
        if not text:
            raise bad_request("'q' is empty; it must be a part of a label.", "q", "invalid_value")
        limit = read_whole(request.args, "limit", 50, 1, MAX_FOUND)
        return json_response({"query": text, "features": _search(service, text, limit)})

    @app.get("/v1/features/<int:index>")
    def feature(index: int) -> Response:
        if index >= service.loaded.width:
            raise Problem(404, f"There is no feature {index}; the SAE has {service.loaded.width}.")
        return json_response(_feature(service, index))

    return app


def _subscribe(service: Service) -> Response:
    """Works while the model loads too: events come when there are any."""
    if service.stopping:
        _ = service.loaded
    view = read_view(request.args, service.ranking)
    completion_id = request.args.get("completion_id")
    last_id = request.headers.get("Last-Event-ID") or _since(service)
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


def _since(service: Service) -> str | None:
    """`?since=`, for readers that cannot set a header. It is checked; the header a browser sends is not."""
    since = request.args.get("since")
    if since is not None and not service.stream.is_identifier(since):
        raise bad_request(
            f"'since' is {since[:60]!r}; it must be an event's id, or 0.", "since", "invalid_value"
        )
    return since


def _search(service: Service, text: str, limit: int) -> list[dict[str, Any]]:
    loaded = service.loaded
    if loaded.results is not None:
        results = loaded.results
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
