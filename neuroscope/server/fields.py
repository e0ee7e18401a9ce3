"""Typed reading of a request's fields: absent and null are the same, and nothing is guessed.

Each function returns the value or raises a 400 that names the field, what was sent and what is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from neuroscope.errors import shown
from neuroscope.server.problems import bad_request, wrong

Fields = Mapping[str, Any]


def refuse_unknown(fields: Fields, accepted: Collection[str], *, elsewhere: Collection[str] = ()) -> None:
    """For routes that no other server has, so that no client sends extras: an unknown field is a mistake.

    Those of `elsewhere` are parameters of the query string.
    """
    for name in fields:
        if name not in accepted:
            where = " It goes into the query string." if name in elsewhere else ""
            *most, last = accepted
            known = f"{', '.join(most)} or {last}" if most else last
            raise bad_request(
                f"There is no field {shown(name)}; the body has {known}.{where}",
                name if len(name) <= 60 else None,
                "unknown_parameter",
            )


def boolean(fields: Fields, name: str, default: bool = False) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return value


def integer(fields: Fields, name: str, low: int, high: int | None = None) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    found = whole(value)
    accepted = (
        f"a whole number from {low} to {high}" if high is not None else f"a whole number of {low} or more"
    )
    if found is None or found < low or (high is not None and found > high):
        raise wrong(name, value, accepted)
    return found


def whole(value: Any) -> int | None:
    """`value` where it is a whole number. In JSON 16.0 is one too, and what some languages write."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(fields: Fields, name: str, low: float, high: float, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(name, value, f"a number from {low:g} to {high:g}")
    return float(value)


def string(fields: Fields, name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(name, value, "a string")
    return value


def mapping(fields: Fields, name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value
