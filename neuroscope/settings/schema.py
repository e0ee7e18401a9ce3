"""Checks a configuration against its JSON schema, with messages for the person who wrote it.

The schemas are the only place that knows types, ranges, meanings and built-in values.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from neuroscope.errors import ConfigError

Tree = dict[str, Any]


def _is_whole(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(_: Any, value: Any) -> bool:
    return _is_whole(_, value) or (isinstance(value, float) and math.isfinite(value))


_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_whole, "number": _is_finite}
    ),
)
"""Stricter than JSON schema, for which 8080.0 is an integer and NaN a number that is in every range."""


class _TwiceError(Exception):
    """A key stands twice in one mapping."""


class _EachKeyOnce(yaml.SafeLoader):
    """YAML readers keep the last of two equal keys, so that a setting further up would be lost without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise _TwiceError(
                    f"line {line}: {key.value} is given in line {lines[name]} already. Remove one."
                )
            lines[name] = line
        return node


@cache
def read_schema(path: Path) -> Tree:
    """A schema file, read once a process."""
    return read_yaml(path)


def read_yaml(path: Path) -> Tree:
    """A YAML mapping. Raises ConfigError when the file is missing, not YAML, not a mapping, or has a key twice."""
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), _EachKeyOnce)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except _TwiceError as error:
        raise ConfigError(f"{path}, {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold keys and values, found a {type(tree).__name__}.")
    return tree


def check(tree: Mapping[str, Any], schema: Tree, *, origin: str) -> None:
    """Raises ConfigError that names the key, what was found and what is accepted."""
    _refuse_unknown_keys(tree, schema, origin)
    errors = sorted(_Validator(schema).iter_errors(tree), key=lambda error: list(map(str, error.path)))
    if errors:
        raise ConfigError("\n".join(f"{origin}: {_sentence(error)}" for error in errors))


def dotted_keys(schema: Tree, prefix: str = "") -> Iterator[str]:
    """Every setting of a schema: `serve.port` and so on; sections themselves are left out."""
    for name, child in schema.get("properties", {}).items():
        if "properties" in child:
            yield from dotted_keys(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def defaults(schema: Tree) -> Tree:
    """The built-in values of a schema, as a tree."""
    return {
        name: defaults(child) if "properties" in child and "default" not in child else child.get("default")
        for name, child in schema.get("properties", {}).items()
    }


def merge(*trees: Mapping[str, Any]) -> Tree:
    """Later trees win, key by key; null never replaces a value, a list replaces a list."""
    merged: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            if isinstance(value, Mapping):
                below = merged.get(key)
                merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
            elif value is not None or key not in merged:
                merged[key] = value
    return merged


def nest(overrides: Mapping[str, Any], schema: Tree) -> Tree:
    """`{"serve.port": 1}` as `{"serve": {"port": 1}}`; an unknown key is refused by name."""
    known = set(dotted_keys(schema))
    tree: Tree = {}
    for key, value in overrides.items():
        if key not in known:
            raise ConfigError(_unknown(key, sorted(known), "overrides"))
        *sections, leaf = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[leaf] = list(value) if isinstance(value, tuple) else value
    return tree


def _refuse_unknown_keys(tree: Mapping[str, Any], schema: Tree, origin: str, prefix: str = "") -> None:
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is not False:
        return
    for key, value in tree.items():
        if key not in properties:
            raise ConfigError(_unknown(f"{prefix}{key}", [f"{prefix}{name}" for name in properties], origin))
        if isinstance(value, Mapping):
            _refuse_unknown_keys(value, properties[key], origin, f"{prefix}{key}.")


def _unknown(key: str, known: list[str], origin: str) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}."
    return f"{origin}: {key} is not a setting. {hint}"


def _sentence(error: ValidationError) -> str:
    key = ".".join(map(str, error.path)) or "the file"
    if error.validator == "required":
        return f"{key}: {error.message}."
    meaning = error.schema.get("description", "") if isinstance(error.schema, Mapping) else ""
    return f"{key} is {error.instance!r}, must be {_accepted(error.schema)}. {meaning}".strip()


def _accepted(schema: Any) -> str:
    """A field's type and range in words."""
    if values := schema.get("enum"):
        return "one of " + ", ".join("null" if value is None else str(value) for value in values)
    kinds = schema.get("type", "a value")
    words = [" or ".join([kinds] if isinstance(kinds, str) else kinds)]
    for name, phrase in {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
        "pattern": "matching",
        "minLength": "of length at least",
        "minItems": "with items, at least",
    }.items():
        if name in schema and not (name == "pattern" and "examples" in schema):
            words.append(f"{phrase} {schema[name]}")
    if examples := schema.get("examples"):
        words.append("as " + " or ".join(map(str, examples)))
    return ", ".join(words)
