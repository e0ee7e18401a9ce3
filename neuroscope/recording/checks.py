"""Checks of single values of a document that anybody may have written: what is wrong is said with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neuroscope.errors import shown

LARGEST = 3.4e38  # of a 32-bit float, as which activations are stored
_SURROGATES = re.compile("[\ud800-\udfff]")

Check = Callable[[Any, str], Any]
"""Returns the value as it is kept, or raises Wrong; the second argument is its place in the document."""


class Wrong(Exception):
    """A field is not what it must be; whoever reads the document says of which file."""


def fields(found: Any, place: str, checks: Mapping[str, Check]) -> dict[str, Any]:
    """The fields of an object that `checks` name, each checked; what else it has is left out."""
    if not isinstance(found, Mapping):
        raise Wrong(f"'{place}' is {shown(found)}; it must be an object")
    prefix = f"{place}." if place else ""
    row = {}
    for name, check in checks.items():
        if name not in found:
            raise Wrong(f"'{prefix}{name}' is absent")
        row[name] = check(found[name], f"{prefix}{name}")
    return row


def items(document: Mapping[str, Any], name: str, at_most: int) -> Sequence[Any]:
    found = document.get(name)
    if not isinstance(found, list) or len(found) > at_most:
        raise Wrong(f"'{name}' is {shown(found)}; it must be a list of {at_most:,} at most")
    return found


def text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise Wrong(f"'{place}' is {shown(value)}; it must be a text")
    return _SURROGATES.sub("\ufffd", value)


def matching(pattern: re.Pattern[str], words: str) -> Check:
    def check(value: Any, place: str) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise Wrong(f"'{place}' is {shown(value)}; it must be {words}")
        return value

    return check


def whole(below: int) -> Check:
    def check(value: Any, place: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
            raise Wrong(f"'{place}' is {shown(value)}; it must be a whole number from 0 to {below - 1}")
        return value

    return check


def number(value: Any, place: str) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not abs(value) <= LARGEST:
        raise Wrong(f"'{place}' is {shown(value)}; it must be a number")
    return float(value)


def share(value: Any, place: str) -> float:
    if not 0 <= (share := number(value, place)) <= 1:
        raise Wrong(f"'{place}' is {shown(value)}; it must be a number from 0 to 1")
    return share


def truth(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"'{place}' is {shown(value)}; it must be true or false")
    return value


def one_of(*words: str) -> Check:
    def check(value: Any, place: str) -> str:
        if not isinstance(value, str) or value not in words:
            raise Wrong(f"'{place}' is {shown(value)}; it must be one of {', '.join(words)}")
        return value

    return check


def maybe(check: Check) -> Check:
    return lambda value, place: None if value is None else check(value, place)
