"""The OpenAPI document of each port, as `/openapi.json` serves it.

The files of `openapi/` are written by hand; they are put together here, once. That they say what the code does is
held by `tests/server/test_document.py` and `test_openapi.py`.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from flask import Flask, Response

from neuroscope.manifest import package_version
from neuroscope.server import wire

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one takes a tenth of the time


def add_document(app: Flask, port: str) -> None:
    """Serve the document of `port`, chat or features."""
    body = wire.encode(document(port))

    @app.get("/openapi.json")
    def openapi() -> Response:
        return Response(body, mimetype="application/json")


def document(port: str) -> dict[str, Any]:
    """What `PORT.yaml` and `shared.yaml` say together, with what every operation has in common filled in."""
    shared, own = _read("shared"), _read(port)
    everywhere = shared.pop("everywhere")
    whole: dict[str, Any] = _merged(shared, own)
    whole["info"]["version"] = package_version()
    responses = list(whole["components"]["responses"].values())
    for path in whole["paths"].values():
        for operation in path.values():
            operation["responses"] |= everywhere["responses"]
            responses += [r for r in operation["responses"].values() if "$ref" not in r]
    for response in responses:
        response["headers"] = everywhere["headers"] | response.get("headers", {})
    return whole


def _read(name: str) -> dict[str, Any]:
    file = resources.files("neuroscope.server").joinpath("openapi", f"{name}.yaml")
    read: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), LOADER)  # a safe loader
    return read


def _merged(one: Any, other: Any) -> Any:
    """Objects with the names of both, lists one after the other; neither file overwrites what the other says."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {name: _merged(one[name], v) if name in one else v for name, v in other.items()}
    if isinstance(one, list) and isinstance(other, list):
        return one + other
    raise ValueError(f"shared.yaml and another file both say {one!r} and {other!r}")
