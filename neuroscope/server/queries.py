"""Reading a request's query string: nothing in it is guessed, and nothing that was meant is ignored.

A misspelt `topk=5` that had no effect would silently change the answer. What the values mean is said beside the
routes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

from flask import request

from neuroscope.errors import shown
from neuroscope.server.problems import bad_request, wrong

UNREAD = "_"
"""What begins like this is not looked at: clients add `_=1700000000` so that no cache answers."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def read_query(*accepted: str) -> dict[str, str]:
    """The current request's parameters.

    Raises Problem 400 for one that is not `accepted`, that is given twice, or that is not UTF-8.
    """
    found: dict[str, str] = {}
    for part in request.query_string.split(b"&"):
        name, value = (_decoded(text) for text in part.partition(b"=")[::2])
        if not part or name.startswith(UNREAD):
            continue
        if name not in accepted:
            known = f"has {', '.join(accepted)}" if accepted else "has none"
            raise bad_request(
                f"There is no parameter {shown(name)}; {shown(request.path)} {known}.",
                name if name.isidentifier() and len(name) <= 60 else None,
                "unknown_parameter",
            )
        if name in found:
            raise bad_request(f"{name!r} is given twice; give it once.", name, "invalid_value")
        found[name] = value
    return found


def read_number(query: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    """A number of a query string. Raises Problem 400."""
    text = query.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not low <= float(text) <= high:
        raise wrong(name, text, f"a number from {low:g} to {high:g}")
    return float(text)


def read_whole(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number of a query string. Raises Problem 400."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not low <= int(text) <= high:
        raise wrong(name, text, f"a whole number from {low} to {high}")
    return int(text)


def read_choice(query: Mapping[str, str], name: str, default: str, choices: Sequence[str]) -> str:
    """One of some words of a query string. Raises Problem 400."""
    chosen = query.get(name, default)
    if chosen not in choices:
        raise wrong(name, chosen, f"one of {', '.join(choices)}")
    return chosen


def _decoded(text: bytes) -> str:
    try:
        return unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_request(
            f"The query string is not UTF-8, in {shown(text[:100].decode('latin-1'))}.", code="invalid_query"
        ) from error
