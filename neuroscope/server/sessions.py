"""Recorded sessions over HTTP: an answer saved from the ring, listed, shown, exported and deleted.

The files and their database are `neuroscope.sessions`' business. They are touched in the lookups thread, never in
the hub; what is already recorded is served without a model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from flask import Flask, Response
from werkzeug.routing import BaseConverter

from neuroscope.errors import ArtefactError, PromptError
from neuroscope.models.conversation import read_messages
from neuroscope.recording import MAX_TITLE
from neuroscope.server import fields
from neuroscope.server.body import read_json_object
from neuroscope.server.problems import Problem, bad_request, from_prompt_error, wrong
from neuroscope.server.queries import read_query, read_whole
from neuroscope.server.recorder import published_of, recording_of
from neuroscope.server.service import Service
from neuroscope.server.session_html import session_html
from neuroscope.server.status import json_response
from neuroscope.server.subscribers import COMPLETION_ID
from neuroscope.sessions import Sessions, TooManySessionsError, UnknownSessionError

log = logging.getLogger(__name__)

SAVED_FIELDS = ("completion_id", "title", "messages")
LISTED_BY = ("limit", "offset")
MAX_LISTED = 500
MAX_OFFSET = 999_999_999

T = TypeVar("T")


class SessionId(BaseConverter):
    """Whatever is asked for, but for the ending of a page's path; what is no recording's name, `Sessions` refuses."""

    regex = r"(?:(?!\.html$)[^/])+"


def add_sessions(app: Flask, service: Service) -> None:
    """Add the routes to `app`."""
    app.url_map.converters["session"] = SessionId

    @app.post("/v1/sessions")
    def save() -> Response:
        read_query()
        return json_response(_save(service, read_json_object()), 201)

    @app.get("/v1/sessions")
    def sessions() -> Response:
        query = read_query(*LISTED_BY)
        limit, offset = (
            read_whole(query, "limit", 50, 1, MAX_LISTED),
            read_whole(query, "offset", 0, 0, MAX_OFFSET),
        )
        total, rows = ask(service, lambda kept: kept.page(offset, limit))
        listed = [{**row, "url": page_of(row["id"])} for row in rows]
        return json_response({"total": total, "offset": offset, "limit": limit, "sessions": listed})

    @app.get("/v1/sessions/<session:id>")
    def session(id: str) -> Response:
        read_query()
        body = ask(service, lambda kept: kept.read(id).to_json().encode())
        return Response(body, mimetype="application/json")

    @app.get("/v1/sessions/<session:id>.html")
    def page(id: str) -> Response:
        read_query()
        body = ask(service, lambda kept: session_html(kept.read(id)).encode())
        # A file to keep: opened here, it would be a page of this server with the rights of its own.
        headers = {"Content-Disposition": f'attachment; filename="{id}.html"'}
        return Response(body, mimetype="text/html", headers=headers)

    @app.delete("/v1/sessions/<session:id>")
    def delete(id: str) -> Response:
        read_query()
        notes = ask(service, lambda kept: kept.delete(id))
        return json_response({"id": id, "deleted": True, "notes": _logged(notes)})


def ask(service: Service, question: Callable[[Sessions], T]) -> T:
    """`question` of the recordings, away from the hub. Raises Problem."""
    service.refuse_when_stopping()
    kept = service.sessions
    if kept is None:
        raise Problem(404, "This server keeps no sessions.", code="session_not_found")
    try:
        return service.lookups.call(question, kept)
    except ArtefactError as error:
        refuse(error)


def refuse(error: ArtefactError) -> NoReturn:
    """Raises the Problem for what `Sessions` says: nothing here is mended by asking again."""
    if isinstance(error, UnknownSessionError):
        raise Problem(404, str(error), code="session_not_found") from error
    if isinstance(error, TooManySessionsError):
        raise Problem(422, str(error), code="sessions_full") from error
    raise Problem(422, str(error), code="session_damaged") from error


def page_of(name: str) -> str:
    """Where a person looks at a recording."""
    return f"/session/{name}"


def _save(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    fields.refuse_unknown(body, SAVED_FIELDS)
    completion_id = fields.string(body, "completion_id")
    if completion_id is None or not COMPLETION_ID.fullmatch(completion_id):
        raise wrong("completion_id", completion_id, "the id of an answer, as chatcmpl-1939d6fb")
    title = (fields.string(body, "title") or "").strip()
    if len(title) > MAX_TITLE:
        raise bad_request(
            f"'title' has {len(title):,} characters; send {MAX_TITLE} at most.", "title", "invalid_value"
        )
    messages = _messages(body.get("messages"))
    loaded = service.loaded
    published = published_of(service.stream, completion_id, service.is_answering(completion_id))
    ranking = service.ranking

    def keep(kept: Sessions) -> tuple[str, list[str]]:
        made = recording_of(published, loaded, ranking, title=clean(title) or None, messages=messages)
        try:
            return made.id, kept.save(made)
        except (UnknownSessionError, TooManySessionsError):
            raise
        except ArtefactError as error:
            raise Problem(507, str(error), code="not_saved", should_retry=False) from error

    name, notes = ask(service, keep)
    return {"id": name, "url": page_of(name), "notes": _logged(notes)}


def clean(text: str) -> str:
    """Without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _messages(given: Any) -> list[dict[str, Any]] | None:
    """The conversation as a recording keeps it: a role and a text each."""
    if given is None:
        return None
    try:
        return [{"role": turn.role, "content": turn.text} for turn in read_messages(given)]
    except PromptError as error:
        raise from_prompt_error(error, "messages") from error


def _logged(notes: list[str]) -> list[str]:
    """In the hub: a native thread may take no lock of the log's."""
    for note in notes:
        log.warning("%s", note)
    return notes
