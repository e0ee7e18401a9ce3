"""Reading a request's JSON body: bounded in size, depth and time, and never guessed.

What the fields mean is said in `chat_request.py` and beside the routes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent
from flask import request
from gunicorn.http.errors import ParseException
from werkzeug.sansio.utils import get_content_length

from neuroscope.errors import shown
from neuroscope.server import wire
from neuroscope.server.problems import Problem, bad_request

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MAX_BYTES = 1_000_000
READ_SECONDS = 20.0


def _at_once(read: Callable[[bytes], Any], body: bytes) -> Any:
    return read(body)


def read_json_object(
    *, at_most: int = MAX_BYTES, parse: Callable[[Callable[[bytes], Any], bytes], Any] = _at_once
) -> dict[str, Any]:
    """The current request's body, of `at_most` bytes. A long one is parsed away from the hub, by `parse`.

    Raises Problem: 415 not JSON or compressed, 413 too long, 408 too slow, 400 no object. Only `application/json`
    is read: a page of another site can post text/plain without asking first.
    """
    if request.mimetype != "application/json":
        raise Problem(
            415,
            f"Content-Type is {shown(request.mimetype) if request.mimetype else 'absent'}; "
            "send application/json.",
            code="unsupported_media_type",
        )
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise Problem(
            415, f"The charset is {shown(charset)}; send JSON in UTF-8.", code="unsupported_media_type"
        )
    for header in ("Content-Encoding", "Transfer-Encoding"):
        coding = request.headers.get(header, "").strip().lower()
        if coding not in ("", "identity", "chunked"):
            raise Problem(
                415,
                f"{header} is {shown(coding)}; send the body as it is, without compression.",
                code="unsupported_content_encoding",
            )
    try:
        value = parse(wire.loads, read_bounded(request.environ, at_most))
    except ValueError as error:
        raise bad_request(str(error), code="invalid_json") from error
    if not isinstance(value, dict):
        raise bad_request(f"The body is {shown(value)}; it must be a JSON object.", code="invalid_json")
    return value


def read_bounded(environ: WSGIEnvironment, at_most: int = MAX_BYTES) -> bytes:
    """The body as it came. Raises Problem: 413 too long, 408 too slow, 400 cut off.

    At most one byte more is read: the length a client states may be absent or untrue.
    """
    too_long = Problem(413, f"The body is longer than {at_most:,} bytes.")
    cut_off = bad_request("The body is cut off or wrongly chunked.", code="invalid_body")
    stated = get_content_length(environ.get("CONTENT_LENGTH"), environ.get("HTTP_TRANSFER_ENCODING")) or 0
    if stated > at_most:
        raise too_long
    body = b""
    with gevent.Timeout(READ_SECONDS, Problem(408, f"The body did not arrive within {READ_SECONDS:.0f} s.")):
        stream = environ["wsgi.input"]
        try:
            while len(body) <= at_most and (piece := stream.read(at_most + 1 - len(body))):
                body += piece
        except (ParseException, OSError) as error:
            raise cut_off from error
    if len(body) > at_most:
        raise too_long
    if len(body) < stated:  # it may be JSON so far, and yet not what was meant
        raise cut_off
    return body
