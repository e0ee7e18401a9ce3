"""The pages of the features port and the files they are made of: plain HTML, CSS and JavaScript modules.

Nothing of a page comes from another host, and its Content-Security-Policy lets it talk to the two ports only.
Files are read once, when the application is made: a request cannot name any other.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from flask import Flask, Response, abort, request

from neuroscope.server.page_paths import STATIC

PAGES = {
    "/": "live.html",
    "/features": "features.html",
    "/feature/<int:index>": "feature.html",
    "/sessions": "sessions.html",
    "/session/<name>": "session.html",
    "/diff": "diff.html",
}
"""Rule -> file. What is in the path, the page's script reads from its own address."""

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
_CHAT_PORT = "{{chat_port}}"


class File(NamedTuple):
    body: bytes
    mimetype: str
    etag: str


def add_pages(app: Flask, chat_port: int) -> None:
    """Add the routes to `app`. `chat_port` is where its pages send their conversations."""
    files = web_files(chat_port)

    def serve(name: str, policy: str | None = None) -> Response:
        file = files.get(name)
        if file is None:
            abort(404)
        response = Response(file.body, mimetype=file.mimetype, headers={"Cache-Control": "no-cache"})
        if policy is not None:
            response.headers["Content-Security-Policy"] = policy
        response.set_etag(file.etag)
        response.make_conditional(request)  # 304 for whoever has it
        return response

    def page(name: str) -> Response:
        return serve(name, content_security_policy(request.host, chat_port))

    for rule, name in PAGES.items():
        app.add_url_rule(rule, f"page_{name}", partial(_without_path, page, name))
    app.add_url_rule(f"{STATIC}<name>", "static_file", lambda name: serve(f"static/{name}"))


def _without_path(page: Callable[[str], Response], file: str, **_path: str | int) -> Response:
    """The page whatever its path names: its script looks that up."""
    return page(file)


def content_security_policy(host: str, chat_port: int) -> str:
    """What a page may do: run and show the server's own files, and talk to its two ports.

    `host` is the Host header, which the gate has compared with the allowed ones.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    chat = f"{request.scheme}://{name}:{chat_port}"
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' {chat}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )


def web_files(chat_port: int) -> dict[str, File]:
    """Every file below `web/` by its path there, `static/base.css`."""
    return {name: _file(entry, chat_port) for name, entry in _walk(resources.files(__package__) / "web", "")}


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        found += _walk(entry, f"{name}/") if entry.is_dir() else [(name, entry)]
    return found


def _file(entry: Traversable, chat_port: int) -> File:
    suffix = entry.name[entry.name.rfind(".") :]
    body = entry.read_bytes()
    if suffix == ".html":
        body = body.replace(_CHAT_PORT.encode(), str(chat_port).encode())
    mimetype = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
    return File(body, mimetype, hashlib.sha256(body).hexdigest()[:32])
