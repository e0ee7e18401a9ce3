"""JSON and server-sent events as bytes: what every response of both servers is made of.

Which fields a response has is said where the response is built.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from neuroscope.errors import shown

MAX_DEPTH = 32
MAX_DIGITS = 400  # the longest float has 309
HEARTBEAT = b": heartbeat\n\n"
DONE = b"data: [DONE]\n\n"
STREAM_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}

# Clients that cut a stream into lines with str.splitlines() break at these too; JSON allows them unescaped.
_LINE_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def dumps(value: Any) -> str:
    """`value` as one line of strict JSON. Raises ValueError for NaN and infinity, which JSON has not."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isascii():
        for character, escape in _LINE_BREAKS.items():
            text = text.replace(character, escape)
    return text


def encode(value: Any) -> bytes:
    """`value` as strict JSON in UTF-8; a surrogate without its partner becomes a question mark."""
    return dumps(value).encode("utf-8", "replace")


def loads(body: bytes) -> Any:
    """Read strict JSON of at most 32 levels, each name once. Raises ValueError with a sentence for the sender."""
    if not body.strip():
        raise ValueError("The body is empty; send a JSON object.")
    try:
        value = json.loads(
            body.decode("utf-8").removeprefix("\ufeff"),
            parse_constant=_refuse_constant,
            parse_int=_whole,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"The body is not UTF-8 (byte {error.start}).") from error
    except RecursionError as error:
        raise ValueError(f"The body is nested more than {MAX_DEPTH} levels deep.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"The body is not valid JSON: {error}.") from error
    _refuse_depth(value)
    return value


def data(value: Any) -> bytes:
    """An unnamed server-sent event, the only kind that chat clients read."""
    return b"data: " + encode(value) + b"\n\n"


def event(name: str, value: Any, identifier: str) -> bytes:
    """A named server-sent event with an id, as the features stream sends them."""
    return f"event: {name}\nid: {identifier}\n".encode() + data(value)


def messages(blocks: bytes) -> Iterator[bytes]:
    """The named events among server-sent blocks, each as one JSON object of the same name, id and data."""
    for block in blocks.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if line)
        if b"data" in fields:
            yield b'{"event":"%b","id":"%b","data":%b}' % (fields[b"event"], fields[b"id"], fields[b"data"])


def chunk(block: bytes) -> bytes:
    """As HTTP/1.1 frames what has no stated length."""
    return b"%X\r\n%b\r\n" % (len(block), block)


def finite(value: float | None) -> float | None:
    """A number that JSON can carry: NaN and infinity become null."""
    return None if value is None or not math.isfinite(value) else float(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"The body holds {name}, which is not JSON.")


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"The body holds a number of {len(digits):,} digits; {MAX_DIGITS} are read at most.")
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name given twice some readers take the first, others the last: neither need be what was meant."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"The body gives {shown(name)} twice in one object; give it once.")
        found[name] = value
    return found


def _refuse_depth(value: Any) -> None:
    level, nodes = 0, [value]
    while nodes:
        level += 1
        if level > MAX_DEPTH + 1:
            raise ValueError(f"The body is nested more than {MAX_DEPTH} levels deep.")
        deeper: list[Any] = []
        for node in nodes:
            if isinstance(node, dict):
                deeper.extend(node.values())
            elif isinstance(node, list):
                deeper.extend(node)
        nodes = deeper
