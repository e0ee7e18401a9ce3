"""`neuroscope sae list --remote`: what a release on the hub holds, by the names of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroscope.cli.output import human_bytes, show
from neuroscope.errors import ConfigError, SourceError

SINGLE = ("params.npz",)
"""Weights that are an SAE by themselves."""
IN_A_FOLDER = (
    "params.safetensors",
    "sae.safetensors",
    "sae_weights.safetensors",
    "ae.pt",
    "checkpoints/final.safetensors",
)
"""Weights that are an SAE together with the configuration in their folder."""
PICKLES = (".sae.pt", ".pth")


class Autoencoder(NamedTuple):
    """One SAE of a release."""

    path: str
    """What `sae.path` of a pairing is; a folder ends in `/`."""
    layer: int | None
    width: int | None
    l0: int | str | None
    size: int
    """Bytes of everything it needs."""


def list_release(name: str, layer: int | None, width: str | None, *, as_json: bool) -> None:
    """Prints the SAEs of a pairing's release, or of a repository; its files when their names say nothing."""
    from neuroscope import sources

    uri = _release(name)
    found = sources.listing(uri)
    if not found.sizes:
        raise SourceError(f"{uri}: the repository is empty.")
    everything = autoencoders(found.sizes, found.repository)
    wanted = None if width is None else _number(width)
    rows = [
        row
        for row in everything
        if (layer is None or row.layer == layer) and (wanted is None or row.width == wanted)
    ]
    if not rows:
        raise SourceError(f"{uri}: there is no SAE of {_asked(layer, width)}. {_there(everything)}")
    shown = [row._asdict() for row in rows]
    if not as_json:
        shown = [row | {"size": human_bytes(row["size"])} for row in shown]
    show(shown, as_json=as_json)


def autoencoders(sizes: Mapping[str, int], repository: str) -> list[Autoencoder]:
    """The SAEs among a repository's files (path -> bytes), by layer, width and L0.

    Known are the layouts of Gemma Scope, Gemma Scope 2, SAELens, sparsify, dictionary_learning, Llama Scope,
    Qwen-Scope and single `.pth` files; of another one every file is a row, of unknown layer and width.
    """
    from neuroscope.settings.layout import l0_in, layer_in, width_in

    paths = sorted({found for path in sizes if (found := _sae_path(path))}) or sorted(sizes)
    rows = [
        Autoencoder(
            path, layer_in(path), width_in(path, repository), l0_in(path, repository), _size(path, sizes)
        )
        for path in paths
    ]
    return sorted(rows, key=_order)


def _sae_path(file: str) -> str | None:
    """`sae.path` of the SAE whose weights `file` is; None for a file that is no SAE's weights."""
    name = file.rpartition("/")[2]
    if name in SINGLE or name.endswith(PICKLES):
        return file
    for weights in IN_A_FOLDER:
        if file == weights or file.endswith(f"/{weights}"):
            return file.removesuffix(weights) or file
    return None


def _size(path: str, sizes: Mapping[str, int]) -> int:
    if not path.endswith("/"):
        return sizes[path]
    return sum(size for file, size in sizes.items() if file.startswith(path))


def _order(row: Autoencoder) -> tuple[Any, ...]:
    """Numbers by size; what is not known last; words after numbers."""
    l0 = (1, 0) if row.l0 is None or isinstance(row.l0, str) else (0, row.l0)
    unknown = float("inf")
    return (
        unknown if row.layer is None else row.layer,
        unknown if row.width is None else row.width,
        *l0,
        row.path,
    )


def _release(name: str) -> str:
    """The hub source that a pairing's name (empty: the one in use) or a repository's name stands for."""
    from neuroscope import settings

    if "/" in name:
        return name if name.startswith("hf://") else f"hf://{name}"
    pairing = settings.load_pairing(name) if name else settings.load().pairing
    source = pairing.sae.source
    if not source.startswith("hf://"):
        raise SourceError(
            f"The SAE of {pairing.name} is {source}, not a release on the hub. "
            "Name another pairing or a repository: neuroscope sae list --remote ORG/NAME"
        )
    return source


def _number(width: str) -> int:
    from neuroscope.settings.layout import parse_width

    try:
        return parse_width(width)
    except ValueError as error:
        raise ConfigError(
            f"--width is {width!r}, must be a number of features, such as 16384 or 16k."
        ) from error


def _asked(layer: int | None, width: str | None) -> str:
    words = [f"layer {layer}"] if layer is not None else []
    return " and ".join([*words, *([f"width {width}"] if width else [])])


def _there(rows: list[Autoencoder]) -> str:
    layers = sorted({row.layer for row in rows if row.layer is not None})
    widths = sorted({row.width for row in rows if row.width is not None})
    if not layers and not widths:
        return "Its files say neither layer nor width; without the filter they are listed."
    return f"Layers: {', '.join(map(str, layers)) or 'unknown'}; widths: {', '.join(map(str, widths)) or 'unknown'}."
