"""Reads and writes recordings. Nothing in a file is believed: it may be cut short, foreign or made to do harm."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from neuroscope.errors import ArtefactError, shown
from neuroscope.ranking import FILTERS
from neuroscope.recording import checks
from neuroscope.recording.checks import LARGEST, Check, Wrong
from neuroscope.recording.document import FORMAT, VERSION, Recording, Row
from neuroscope.sources import read_text, replace_atomically

MAX_BYTES = 64_000_000
MAX_TOKENS = 100_000
MAX_TITLE = 200
MAX_WIDTH = 1 << 24
IDENTIFIER = re.compile("[a-z0-9][a-z0-9-]{0,63}")
"""A session's id is a file's name too: no dots, no separators, the same in any case."""
REMEDY = "Make one with `neuroscope record PROMPT`."

_COMPLETION_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_ID_LIMIT = 2**31


def read_recording(path: Path) -> Recording:
    """Raises ArtefactError that says what is wrong with the file."""
    try:
        text = read_text(path, at_most=MAX_BYTES)
    except FileNotFoundError as error:
        raise ArtefactError(f"There is no recording at {path}. {REMEDY}") from error
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read as a recording: {_reason(error)}. {REMEDY}") from error
    return parse_recording(text, of=str(path))


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def parse_recording(text: str, *, of: str) -> Recording:
    """A recording from its JSON; `of` names where it came from. Raises ArtefactError."""
    try:
        document = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{of} is not JSON, or cut short: {error}. {REMEDY}") from error
    return check_recording(document, of=of)


def write_recording(path: Path, recording: Recording) -> int:
    """Whole or not at all; returns the bytes. Raises ArtefactError for one that is too long to be read again."""
    body = recording.to_json().encode()
    if len(body) > MAX_BYTES:
        raise ArtefactError(
            f"The recording has {len(body):,} bytes, {MAX_BYTES:,} at most are kept. Record a shorter answer."
        )
    with replace_atomically(path) as temporary:
        temporary.write_bytes(body)
    return len(body)


def check_recording(document: Any, *, of: str) -> Recording:
    """The recording in a parsed document; fields that are not known are left out. Raises ArtefactError."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise ArtefactError(f'{of} is no recording: it lacks "format": "{FORMAT}". {REMEDY}')
    if document.get("version") != VERSION or isinstance(document["version"], bool):
        raise ArtefactError(
            f"{of} is a recording of version {shown(document.get('version'))}; this Neuroscope reads "
            f"{VERSION}. Record it anew, or install the version that wrote it."
        )
    try:
        return _checked(document)
    except Wrong as error:
        raise ArtefactError(f"{of} is no whole recording: {error}. {REMEDY}") from error


def _checked(document: Mapping[str, Any]) -> Recording:
    plain = checks.fields(document, "", _PLAIN)
    width = plain["width"]
    features = _features(document.get("features"), width)
    tokens = _tokens(document, "tokens", _ANSWER_TOKEN, features)
    prompt = _tokens(document, "prompt", _PROMPT_TOKEN, features)
    if not tokens:
        raise Wrong("'tokens' is empty")
    if plain["total_tokens"] > len(tokens):
        raise Wrong(f"'total_tokens' is {plain['total_tokens']} and there are {len(tokens)} tokens")
    told = document.get("messages")
    return Recording(
        **plain,
        fingerprint=checks.fields(document.get("fingerprint"), "fingerprint", _FINGERPRINT),
        degraded=[
            checks.text(item, f"degraded[{n}]")
            for n, item in enumerate(checks.items(document, "degraded", 100))
        ],
        messages=None if told is None else _messages(document),
        prompt=prompt,
        tokens=tokens,
        ranking=checks.fields(document.get("ranking"), "ranking", _RANKING),
        features=features,
    )


def _messages(document: Mapping[str, Any]) -> list[Row]:
    found = checks.items(document, "messages", MAX_TOKENS)
    return [checks.fields(message, f"messages[{n}]", _MESSAGE) for n, message in enumerate(found)]


def _features(found: Any, width: int) -> dict[str, Row]:
    if not isinstance(found, dict):
        raise Wrong(f"'features' is {shown(found)}; it must be an object")
    for name in found:
        if not (name.isascii() and name.isdigit() and str(int(name[:9])) == name and int(name) < width):
            raise Wrong(f"'features' has {shown(name)}; the SAE has features 0 to {width - 1}")
    return {name: checks.fields(row, f"features.{name}", _FEATURE) for name, row in found.items()}


def _tokens(
    document: Mapping[str, Any], name: str, kinds: Mapping[str, Check], features: Mapping[str, Row]
) -> list[Row]:
    known = {int(index) for index in features}
    rows = []
    for n, given in enumerate(checks.items(document, name, MAX_TOKENS)):
        place = f"{name}[{n}]"
        row = checks.fields(given, place, kinds)
        row["top_features"] = active = _active(given.get("top_features"), f"{place}.top_features")
        indices = {index for index, _, _ in active}
        if len(indices) != len(active) or row["l0"] != len(active):
            raise Wrong(f"{place} has l0 {row['l0']} and {len(indices)} features; each must be there, once")
        if unknown := indices - known:
            raise Wrong(f"{place} names feature {min(unknown)}, which 'features' does not have")
        rows.append(row)
    return rows


def _active(found: Any, place: str) -> list[list[Any]]:
    if not isinstance(found, list):
        raise Wrong(f"{place} is {shown(found)}; it must be a list of [index, activation, surprise]")
    for triple in found:
        match triple:
            case [int() as index, int() | float() as activation, int() | float() | None as surprise] if (
                not any(isinstance(value, bool) for value in triple)
                and 0 <= index < MAX_WIDTH
                and 0 < activation <= LARGEST
                and (surprise is None or abs(surprise) <= LARGEST)
            ):
                continue
        raise Wrong(
            f"{place} holds {shown(triple)}; it must be [index, activation above 0, surprise or null]"
        )
    return [list(triple) for triple in found]


def _title(value: Any, place: str) -> str:
    if len(text := checks.text(value, place)) > MAX_TITLE:
        raise Wrong(f"'{place}' has {len(text):,} characters; {MAX_TITLE} are read at most")
    return text


def _width(value: Any, place: str) -> int:
    if (width := int(checks.whole(MAX_WIDTH + 1)(value, place))) == 0:
        raise Wrong(f"'{place}' is 0; an SAE has a feature at least")
    return width


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is not JSON")


_PLAIN: Mapping[str, Check] = {
    "id": checks.matching(IDENTIFIER, "small letters, digits and hyphens, 64 at most"),
    "created_at": checks.matching(_TIME, "a time such as 2026-01-31T09:00:00Z"),
    "title": _title,
    "model": checks.text,
    "pairing": checks.text,
    "layer": checks.whole(10_000),
    "sae_id": checks.text,
    "width": _width,
    "completion_id": checks.matching(_COMPLETION_ID, "the id of an answer"),
    "finish_reason": checks.one_of("stop", "length", "cancelled", "shutdown"),
    "total_tokens": checks.whole(MAX_TOKENS + 1),
}
_FINGERPRINT: Mapping[str, Check] = {
    "model": checks.text,
    "model_revision": checks.maybe(checks.text),
    "tokenizer_sha256": checks.text,
    "sae_sha256": checks.text,
    "layer": checks.whole(10_000),
    "d_in": checks.whole(_ID_LIMIT),
    "d_sae": checks.whole(_ID_LIMIT),
    "input_norm": checks.text,
    "schema_version": checks.whole(_ID_LIMIT),
}
_MESSAGE: Mapping[str, Check] = {"role": checks.one_of("system", "user", "assistant"), "content": checks.text}
_RANKING: Mapping[str, Check] = {
    "filter": checks.one_of(*FILTERS),
    "threshold": checks.share,
    "top_k": checks.whole(_ID_LIMIT),
}
_TOKEN: Mapping[str, Check] = {
    "token": checks.text,
    "token_id": checks.whole(_ID_LIMIT),
    "position": checks.whole(_ID_LIMIT),
    "l0": checks.whole(MAX_WIDTH + 1),
    "fvu": checks.maybe(checks.number),
}
_ANSWER_TOKEN: Mapping[str, Check] = {"token_index": checks.whole(_ID_LIMIT), **_TOKEN}
_PROMPT_TOKEN: Mapping[str, Check] = {**_TOKEN, "content": checks.truth}
_FEATURE: Mapping[str, Check] = {
    "label": checks.text,
    "firing_rate": checks.maybe(checks.share),
    "mean_firing": checks.maybe(checks.number),
    "variance_firing": checks.maybe(checks.number),
    "max_activation": checks.maybe(checks.number),
}
