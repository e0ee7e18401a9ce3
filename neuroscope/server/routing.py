"""A Flask application that answers nothing by itself. What is answered where is said beside the routes."""

from __future__ import annotations

from flask import Flask, Response
from werkzeug.routing import IntegerConverter


class Application(Flask):
    """No static files, no page, no redirection to another spelling of a path."""

    def __init__(self, name: str) -> None:
        super().__init__(name, static_folder=None)
        self.url_map.merge_slashes = False  # `//v1/models` is a 404, not a redirection with a page of HTML
        self.url_map.converters["int"] = WholeNumber

    def make_default_options_response(self) -> Response:
        """The methods of a path, and no page."""
        response = super().make_default_options_response()
        response.status_code = 204
        del response.headers["Content-Type"]
        return response


class WholeNumber(IntegerConverter):
    """Digits of ASCII without leading zeros: Python's `\\d` takes those of every script."""

    regex = "0|[1-9][0-9]{0,99}"
