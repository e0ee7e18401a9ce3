"""Pairing files: reading them, and replacing single fields of one.

Results of a pairing whose fields were replaced are told apart by their fingerprint, not by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from neuroscope.errors import ConfigError
from neuroscope.settings import layout
from neuroscope.settings.layout import parse_width
from neuroscope.settings.schema import Tree, check, read_schema, read_yaml
from neuroscope.settings.values import Neuronpedia, Pairing, Published, SaeSource

_FOLDER = "config/pairings"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[^@\s]+)?")


def pairing_names(root: Path) -> list[str]:
    """Every pairing of a repository, sorted."""
    return sorted(path.stem for path in (root / _FOLDER).glob("*.yaml"))


def read_pairing(name: str, root: Path) -> tuple[Pairing, Tree]:
    """A pairing and its `defaults` for config.yaml. Raises ConfigError that names the known ones."""
    path = root / _FOLDER / f"{name}.yaml"
    known = pairing_names(root)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"There is no pairing {name!r}. {hint}Known: {', '.join(known)}; a new one is {path}."
        )
    tree = read_yaml(path)
    check(tree, read_schema(root / "workflow/schemas/pairing.schema.yaml"), origin=str(path))
    sections = tree.get("defaults") or {}
    check(sections, read_schema(root / "workflow/schemas/config.schema.yaml"), origin=f"{path}, defaults")
    return _pairing(name, tree, root), sections


def replace_fields(pairing: Pairing, config: Mapping[str, Any], root: Path) -> Pairing:
    """`pairing` with the fields that config.yaml or the flags set themselves.

    What was published about the pair is dropped when the SAE or the layer changes: it would be about another
    SAE.
    """
    given = {key: value for key, value in (config.get("sae") or {}).items() if value is not None}
    layer = pairing.layer if config.get("layer") is None else config["layer"]
    if "source" in given:
        given["source"] = _source(given["source"], root)
    width = parse_width(given.pop("width")) if "width" in given else _width_of(given, pairing)
    sae = replace(pairing.sae, width=width, **given)
    if "source" in given:
        sae = replace(sae, path=given.get("path", _path_in(sae.source, pairing)))
    if "path" not in given and (sae.path is not None or "source" not in given):
        sae = replace(sae, path=_path_at(sae.path, layer, width, pairing))
    _check_layer(sae.path or "", layer)
    model = _source(config.get("model") or pairing.model, root)
    changed = replace(pairing, model=model, sae=sae, layer=layer, dtype=config.get("dtype") or pairing.dtype)
    if (model, sae.uri, layer) == (pairing.model, pairing.sae.uri, pairing.layer):
        return changed
    return replace(changed, neuronpedia=None, published=_published_in(sae.path))


def _pairing(name: str, tree: Tree, root: Path) -> Pairing:
    sae = tree["sae"]
    return Pairing(
        name=name,
        model=_source(tree["model"], root),
        sae=SaeSource(
            source=_source(sae["source"], root),
            path=sae.get("path"),
            format=sae["format"],
            input_norm=sae.get("input_norm"),
            width=sae["width"],
        ),
        layer=tree["layer"],
        dtype=tree["dtype"],
        neuronpedia=Neuronpedia(**tree["neuronpedia"]) if tree.get("neuronpedia") else None,
        published=Published(**tree["published"]) if tree.get("published") else None,
        licence=tree["licence"],
        description=tree["description"],
    )


def _source(name: str, root: Path) -> str:
    """A source name: plain paths relative to the repository become absolute, `org/name` of the hub becomes
    hf://.
    """
    if "://" in name or name.startswith("stdlib:"):
        return name
    path = root / Path(name).expanduser()
    if _HUB_NAME.fullmatch(name) and not path.exists():
        return f"hf://{name}"
    return str(path)


def _path_in(source: str, pairing: Pairing) -> str | None:
    """The path to keep for a new source: a local file has none, a repository keeps the pairing's."""
    return pairing.sae.path if "://" in source or not Path(source).is_file() else None


def _width_of(given: Mapping[str, Any], pairing: Pairing) -> int | None:
    """The width when none was set: the pairing's is about the pairing's SAE, not about another path or source."""
    path, source = given.get("path", pairing.sae.path), given.get("source", pairing.sae.source)
    if (path, source) == (pairing.sae.path, pairing.sae.source):
        return pairing.sae.width
    return layout.width_in(path or "", source)


def _check_layer(path: str, layer: int) -> None:
    """Raises ConfigError when the path of an SAE names another layer; how wide one is shows when it is loaded."""
    named = layout.layer_in(path)
    if named is not None and "resid_pre" in path:
        named -= 1  # the input of layer 8 is what layer 7 puts out
    if named not in (None, layer):
        raise ConfigError(
            f"The SAE's path {path!r} is of layer {named}, layer is {layer}. Set layer (--sae-layer) to {named}."
        )


def _path_at(path: str | None, layer: int, width: int | None, pairing: Pairing) -> str | None:
    """`path` for another layer or width, where its layout names them; else the SAE must be given too."""
    if (layer, width) == (pairing.layer, pairing.sae.width):
        return path
    if path is None:
        raise ConfigError(
            f"{pairing.sae.source} is an SAE of layer {pairing.layer} with {pairing.sae.width} features: for "
            "another layer or width set sae.source (--sae) too."
        )
    moved: str | None = path
    if layer != pairing.layer:
        moved = _named(layout.at_layer(path, layer), "layer", path)
    if width is not None and width != pairing.sae.width:
        moved = _named(layout.at_width(moved or path, width), "width", path)
    return moved


def _named(moved: str | None, what: str, path: str) -> str:
    if moved is None:
        raise ConfigError(f"The SAE's path {path!r} names no {what}: set sae.path (--sae-path) too.")
    return moved


def _published_in(path: str | None) -> Published | None:
    """Gemma Scope writes the mean L0 into the path."""
    l0 = layout.l0_in(path or "")
    return Published(l0=float(l0)) if isinstance(l0, int) else None
