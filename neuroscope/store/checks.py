"""Whether a results database is the whole file its manifest describes."""

from __future__ import annotations

import os
from pathlib import Path

from neuroscope.errors import ArtefactError
from neuroscope.manifest import Fingerprint, Manifest
from neuroscope.store.held import HeldFile


def check_against_manifest(file: HeldFile) -> Fingerprint:
    """The fingerprint in the manifest beside `file`, once its bytes are those it lists; they are known by then.

    Raises ArtefactError that says what is missing or differs.
    """
    path = file.path
    if os.path.lexists(write_ahead_log(path)):
        raise ArtefactError(
            f"{path} was not closed by the program that wrote it: {write_ahead_log(path).name} is left. "
            "Delete both, then make the results anew with `snakemake --cores 4 labels`."
        )
    manifest = Manifest.read(path.parent / "manifest.json")
    manifest.check(path.parent, [path.name], sha256_of=lambda _: file.digest())
    file.sha256 = manifest.files[path.name].sha256
    return manifest.fingerprint


def write_ahead_log(path: Path) -> Path:
    """Where DuckDB keeps changes that are not in the file yet."""
    return path.with_name(path.name + ".wal")
