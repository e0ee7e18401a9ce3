"""What the programs have in common: their arguments, the questions, and how the cases are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

SCRIPTED, TINY, KEY = sys.argv[1:4]
MODEL = "scripted/model"
TINY_MODEL = "tiny"
WORDS = "one two three"
TOO_LONG = "word " * 300
LONG_ANSWER = "[delay=0.05] " + "w " * 100
LATE_FAILURE = "[fail=1] one two"
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}
SEEDED: dict[str, Any] = {"temperature": 1, "max_tokens": 24}

said: dict[str, Any] = {}
"""The cases so far, by name."""


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def error_of(call: Callable[[], Any], kind: type[Exception] = Exception) -> dict[str, Any]:
    """What `call` raises, as far as the client tells it."""
    try:
        call()
    except kind as error:
        names = ("status_code", "code", "param")
        status, code, param = (getattr(error, name, None) for name in names)
        return {
            "kind": type(error).__name__,
            "status": status,
            "code": code,
            "param": param,
            "message": str(error),
        }
    raise AssertionError("no error came")


def middle_of(text: str) -> str:
    """Three characters that a stop string may be."""
    return text[len(text) // 2 : len(text) // 2 + 3]


def print_cases() -> None:
    print(json.dumps(said))
