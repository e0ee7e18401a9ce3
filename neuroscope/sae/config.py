"""A release's JSON configuration, which nobody vouches for either: bounded, and read key by key with its type."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroscope.errors import SAEFormatError
from neuroscope.sae.checks import DAMAGED

MAX_BYTES = 1 << 20


class Config:
    """The values of one JSON object. A key that is null counts as not there.

    Every reading method raises SAEFormatError, naming file and key, for a value of another type or out of range, and
    for a key that is missing without a default.
    """

    def __init__(self, file: Path, values: Mapping[str, Any], inside: str = "") -> None:
        self.file = file
        self._values = {key: value for key, value in values.items() if value is not None}
        self._inside = inside

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._value(key, default, str, "a text"))

    def flag(self, key: str, default: bool | None = None) -> bool:
        return bool(self._value(key, default, bool, "true or false"))

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number of 0 or more."""
        value = self._value(key, default, int, "a whole number")
        if not 0 <= value < 1 << 48:
            raise self.refusal(key, "a whole number of 0 or more")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(key, default, int | float, "a number")
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.refusal(key, "a finite number")
        return float(value)

    def section(self, key: str) -> Config:
        return Config(self.file, self._value(key, None, dict, "an object"), f"{self._inside}{key}.")

    def refusal(self, key: str, expected: str) -> SAEFormatError:
        """The error for a value that is there and is not `expected`."""
        found = f"is {json.dumps(self._values[key])[:60]}" if key in self._values else "is missing"
        return SAEFormatError(
            f"{self.file}: {self._inside}{key} {found}, must be {expected}. Check sae.format."
        )

    def _value(self, key: str, default: Any, kind: Any, expected: str) -> Any:
        value = self._values.get(key, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.refusal(key, expected)
        return value


def read_config(file: Path) -> Config:
    """The configuration in `file`. Raises SAEFormatError when it is missing, too long or not a JSON object."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SAEFormatError(
            f"{file} cannot be read: {error.strerror}. This format keeps it with the weights: let sae.path name the "
            "folder that holds both, with / at the end."
        ) from error
    if len(content) > MAX_BYTES:
        raise SAEFormatError(
            f"{file} is longer than {MAX_BYTES} bytes: not the configuration of an SAE. {DAMAGED}"
        )
    return Config(file, parse_object(file, content))


def parse_object(file: Path, content: bytes) -> dict[str, Any]:
    """The JSON object in `content`; no key twice, no NaN. Raises SAEFormatError naming `file`."""
    try:
        value = json.loads(content, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SAEFormatError(
            f"{file} does not hold JSON that can be read: {str(error)[:80]}. {DAMAGED}"
        ) from error
    if not isinstance(value, dict):
        raise SAEFormatError(f"{file} does not hold a JSON object. {DAMAGED}")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands there twice")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
