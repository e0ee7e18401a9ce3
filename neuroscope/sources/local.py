"""Sources that already lie on this machine."""

from __future__ import annotations

import os
import platform
import sysconfig
from pathlib import Path

from neuroscope.errors import SourceError
from neuroscope.sources.content import impostor
from neuroscope.sources.files import check_pin, path_sha256
from neuroscope.sources.uri import Resolved, Source

_REMEDY = "Restore the file, or change the pin."


def resolve_path(source: Source) -> Resolved:
    """The path itself, `~` expanded. Raises SourceError when it is missing, not the pinned bytes or an LFS
    pointer.
    """
    if source.kind == "stdlib":
        return Resolved(Path(sysconfig.get_path("stdlib")), source.uri, platform.python_version(), None)
    path = Path(source.name).expanduser()
    _check_name(path.absolute())
    if not path.exists():
        raise SourceError(f"{source.uri}: no such file or folder. Looked for {path.absolute()}.")
    if not path.is_file() and not path.is_dir():  # to read a pipe may take for ever
        raise SourceError(f"{source.uri}: {path.absolute()} is neither a file nor a folder.")
    if not path.is_file():
        return Resolved(path.absolute(), source.uri, None, _folder_sha256(path, source))
    try:
        content = impostor(path)
        sha256 = path_sha256(path)
    except OSError as error:
        raise SourceError(f"{source.uri}: {path.absolute()} cannot be read: {error.strerror}.") from error
    check_pin(sha256, source.uri, source.sha256, remedy=_REMEDY)
    if content:
        raise SourceError(f"{source.uri}: {path.absolute()} is {content}. For a clone: `git lfs pull`.")
    return Resolved(path.absolute(), source.uri, None, sha256)


def _check_name(path: Path) -> None:
    """The name is written into artefacts, tables and answers, which are UTF-8; Linux allows any bytes."""
    name = os.fsencode(path).decode(errors="backslashreplace")
    if name != str(path):
        raise SourceError(
            f"{name}: this name is not UTF-8. Rename it, or make a link to it with another name."
        )


def _folder_sha256(path: Path, source: Source) -> str | None:
    """Of a pinned folder, or of a model's; a folder of texts may hold anything and is not read here."""
    if source.sha256 is None and not (path / "config.json").is_file():
        return None
    try:
        sha256 = path_sha256(path)
    except OSError as error:
        raise SourceError(f"{source.uri}: {error.filename} cannot be read: {error.strerror}.") from error
    check_pin(sha256, source.uri, source.sha256, remedy=_REMEDY)
    return sha256
