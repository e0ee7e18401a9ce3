"""Recordings as commands name them: by a session's id, or by a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neuroscope.errors import ArtefactError

if TYPE_CHECKING:
    from neuroscope.recording import Recording
    from neuroscope.sessions import Sessions
    from neuroscope.settings import Settings


def sessions_of(settings: Settings) -> Sessions:
    """Those beside the results of the settings' pairing."""
    from neuroscope.sessions import Sessions

    return Sessions(settings.results)


def is_file(name: str) -> bool:
    """Whether `name` is meant as a file: it is there, or is written as a path."""
    return "/" in name or name.endswith(".json") or Path(name).is_file()


def read_named(name: str, settings: Settings) -> Recording:
    """The recording of a file or of a session's id. Raises ArtefactError."""
    from neuroscope.recording import read_recording
    from neuroscope.sessions import UnknownSessionError

    if is_file(name):
        return read_recording(Path(name).expanduser())
    kept = sessions_of(settings)
    try:
        return kept.read(name)
    except UnknownSessionError as error:
        raise ArtefactError(
            f"There is no session {name[:80]!r} in {kept.folder}, and no file of that name. List the sessions "
            f"with `neuroscope session list --pairing {settings.pairing.name}`."
        ) from error
