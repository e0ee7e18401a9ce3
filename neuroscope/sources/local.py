"""Sources that already lie on this machine."""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SourceError
from neuroscope.sources.files import check_pin
from neuroscope.sources.uri import Resolved, Source


def resolve_path(source: Source) -> Resolved:
    """The path itself, `~` expanded. Raises SourceError when it is missing or not the pinned bytes."""
    path = Path(source.name).expanduser()
    if not path.exists():
        raise SourceError(f"{source.uri}: no such file or folder. Looked for {path.absolute()}.")
    sha256 = check_pin(path, source.uri, source.sha256, remedy="Restore the file, or change the pin.")
    return Resolved(path.absolute(), source.uri, None, sha256)
