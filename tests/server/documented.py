"""What the OpenAPI documents promise, as questions that tests ask: operations, requests from examples, validators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema

from neuroscope.server import tickets
from neuroscope.server.document import document

PORTS = ("chat", "features")
DOCUMENTS = {port: document(port) for port in PORTS}


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    port: str
    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.port}: {self.method.upper()} {self.path}"

    @property
    def definition(self) -> dict[str, Any]:
        found: dict[str, Any] = DOCUMENTS[self.port]["paths"][self.path][self.method]
        return found

    @property
    def parameters(self) -> list[dict[str, Any]]:
        return [resolved(self.port, given) for given in self.definition.get("parameters", [])]

    @property
    def responses(self) -> dict[int, dict[str, Any]]:
        return {int(s): resolved(self.port, given) for s, given in self.definition["responses"].items()}

    def query_names(self) -> set[str]:
        """Those its route reads; a ticket is taken by the gate."""
        names = {parameter["name"] for parameter in self.parameters if parameter["in"] == "query"}
        return names - {tickets.PARAMETER}

    def bodies(self) -> list[Any]:
        """The examples of its body; None alone where it has no body."""
        if "requestBody" not in self.definition:
            return [None]
        media = self.definition["requestBody"]["content"]["application/json"]
        return [example["value"] for example in media["examples"].values()]

    def examples(self) -> dict[str, str]:
        """The examples of its parameters in the query, as they are written there."""
        query = [p for p in self.parameters if p["in"] == "query" and "example" in p]
        found = {p["name"]: p["example"] for p in query}
        return {n: ",".join(map(str, e)) if isinstance(e, list) else str(e) for n, e in found.items()}

    def filled_path(self, **values: str) -> str:
        """The path with the examples of its parameters, or other values."""
        path = self.path
        for parameter in self.parameters:
            if parameter["in"] == "path":
                value = values.get(parameter["name"], parameter["example"])
                path = path.replace(f"{{{parameter['name']}}}", str(value))
        return path

    def events(self) -> dict[str, dict[str, Any]]:
        """Schemas of the events of its stream, by name."""
        found: dict[str, Any] = self.responses[200]["content"]["text/event-stream"]["x-events"]
        return found


OPERATIONS = [
    Operation(port, method, path)
    for port in PORTS
    for path, methods in DOCUMENTS[port]["paths"].items()
    for method in methods
]


def operation(port: str, method: str, path: str) -> Operation:
    found = Operation(port, method, path)
    assert found in OPERATIONS, f"openapi/{port}.yaml has no {method.upper()} {path}"
    return found


def schema(port: str, name: str) -> dict[str, Any]:
    """A schema of `components`."""
    found: dict[str, Any] = DOCUMENTS[port]["components"]["schemas"][name]
    return found


def resolved(port: str, node: dict[str, Any]) -> dict[str, Any]:
    """`node`, or what its `$ref` names."""
    while "$ref" in node:
        target: Any = DOCUMENTS[port]
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def validate(port: str, described: dict[str, Any], value: Any) -> None:
    """Raises jsonschema.ValidationError when `value` is not as a schema of the document describes it."""
    _validator(port, json.dumps(described)).validate(value)


@cache
def _validator(port: str, described: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        json.loads(described) | {"components": DOCUMENTS[port]["components"]}
    )


def places(node: Any, place: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object below `node` with where it stands."""
    if isinstance(node, dict):
        yield place, node
        for name, value in node.items():
            yield from places(value, f"{place}/{name}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from places(value, f"{place}/{index}")


def sse_events(text: str) -> Iterator[tuple[str, str]]:
    """Name and data of every whole event of a stream."""
    for block in text.split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if "data" in lines:
            yield lines.get("event", "message"), lines["data"]
