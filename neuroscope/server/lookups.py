"""What is known about the features, for pages and lists: every label, a search, one feature with its examples.

Questions of files and long lists are answered in the lookups thread, never in the hub.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from flask import Flask, Response, request

from neuroscope.server import wire
from neuroscope.server.catalogue import SEARCHED_BY, Catalogue, read_search
from neuroscope.server.feature_page import EXAMPLES_BY, feature_page, read_examples_wanted
from neuroscope.server.feature_table import Tagged, densities, feature_table, tagged
from neuroscope.server.loaded import Loaded
from neuroscope.server.problems import Problem
from neuroscope.server.queries import read_query
from neuroscope.server.service import Service
from neuroscope.server.status import json_response

T = TypeVar("T")


class PerSet(Generic[T]):
    """What is made once for each set of labels. For one thread."""

    def __init__(self, make: Callable[[Loaded], T]) -> None:
        self._make = make
        self._made: tuple[tuple[str, ...], T] | None = None

    def __call__(self, loaded: Loaded) -> T:
        if self._made is None or self._made[0] is not loaded.labels:
            self._made = loaded.labels, self._make(loaded)
        return self._made[1]


def add_lookups(app: Flask, service: Service) -> None:
    """Add the routes to `app`."""
    catalogue, all_labels = PerSet(Catalogue), PerSet(_all_labels)
    table = PerSet(lambda loaded: feature_table(loaded, catalogue(loaded).rows))
    density = PerSet(lambda loaded: densities(catalogue(loaded).rows))

    @app.get("/v1/features/labels")
    def labels() -> Response:
        read_query()
        return _kept(service.look_up(all_labels), "labels")

    @app.get("/v1/features/table")
    def whole_table() -> Response:
        read_query()
        found = service.look_up(table)
        if not request.accept_encodings["gzip"]:
            return _kept(found.plain, "features")
        response = _kept(found.zipped, "features")
        response.headers["Content-Encoding"] = "gzip"
        return response

    @app.get("/v1/features/densities")
    def all_densities() -> Response:
        read_query()
        return json_response(service.look_up(density))

    @app.get("/v1/features/search")
    def search() -> Response:
        wanted = read_search(read_query(*SEARCHED_BY))
        return json_response(service.look_up(lambda loaded: catalogue(loaded).search(wanted)))

    @app.get("/v1/features/<int:index>")
    def feature(index: int) -> Response:
        width = service.loaded.width
        if index >= width:
            raise Problem(404, f"There is no feature {index}; the SAE has {width}, from 0 to {width - 1}.")
        wanted = read_examples_wanted(read_query(*EXAMPLES_BY))
        return json_response(service.look_up(lambda loaded: feature_page(loaded, index, wanted)))


def _kept(found: Tagged, what: str) -> Response:
    """For readers that keep it with its ETag and ask whether it is still good."""
    response = Response(found.body, mimetype="application/json", headers={"Cache-Control": "no-cache"})
    response.vary.add("Accept-Encoding")
    response.set_etag(found.etag)
    response.make_conditional(request)  # 304 for whoever has it
    if response.status_code == 412:  # of which it leaves the body as it is
        raise Problem(412, f"The {what} are not those that If-Match names; leave it out.")
    return response


def _all_labels(loaded: Loaded) -> Tagged:
    labels = {str(index): label for index, label in enumerate(loaded.labels)}
    return tagged(wire.encode({"sae_id": loaded.sae_id, "width": loaded.width, "labels": labels}))
