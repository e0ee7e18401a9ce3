"""Whether a results database is the whole file its manifest describes."""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import ArtefactError
from neuroscope.manifest import Fingerprint, Manifest
from neuroscope.sources import file_sha256

REMEDY = "Make it anew with `snakemake labels`."


def check_against_manifest(path: Path) -> Fingerprint:
    """The fingerprint in the manifest beside `path`, once the file's bytes are those it lists.

    Raises ArtefactError that says what is missing or differs.
    """
    if not path.is_file():
        raise ArtefactError(f"There is no results database at {path}. Make it with `snakemake labels`.")
    if write_ahead_log(path).exists():
        raise ArtefactError(
            f"{path} was not closed by the program that wrote to it ({write_ahead_log(path).name} is there). {REMEDY}"
        )
    manifest = Manifest.read(path.parent / "manifest.json")
    entry = manifest.files.get(path.name)
    if entry is None:
        raise ArtefactError(f"{path.parent / 'manifest.json'} does not list {path.name}. {REMEDY}")
    found = file_sha256(path)
    if found != entry.sha256:
        raise ArtefactError(
            f"{path} is damaged or not the file its manifest describes (sha256 {found}, expected {entry.sha256}). "
            f"{REMEDY}"
        )
    return manifest.fingerprint


def write_ahead_log(path: Path) -> Path:
    """Where DuckDB keeps changes that are not in the file yet."""
    return path.with_name(path.name + ".wal")
