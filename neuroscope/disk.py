"""What a disk refused, in words: full, over quota, read-only or somebody else's.

Every library says it in its own kind of error, and some in text alone; they are told apart here, once, for whoever
stands at the border of a process.
"""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path

from neuroscope.errors import ArtefactError
from neuroscope.sources.files import WRITING

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL_WORDS = re.compile("No space left on device|Disk quota exceeded|File too large", re.IGNORECASE)
_CLOSED_WORDS = re.compile("Read-only file system|Permission denied|Operation not permitted", re.IGNORECASE)


def disk_failure(error: BaseException, folder: Path) -> ArtefactError | None:
    """The failure that the disk of `folder` is behind `error`, or behind what caused it; None when it is not."""
    seen: BaseException | None = error
    while seen is not None:
        number = seen.errno if isinstance(seen, OSError) else None
        if number in _FULL or (number is None and _FULL_WORDS.search(str(seen))):
            return _told(seen, folder, "The disk is full", "Free some space")
        if number in _CLOSED or (
            number is None and _is_of_a_library(seen) and _CLOSED_WORDS.search(str(seen))
        ):
            remedy = "Give yourself the right to write there"
            return _told(seen, folder, "The disk may not be written", remedy)
        seen = seen.__cause__ or seen.__context__
    return None


def unwritten(error: OSError) -> ArtefactError | None:
    """The failure when what could not be written is a file whose place was chosen; None when it was no writing."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(WRITING):
            reason = error.strerror or str(error)
            return ArtefactError(
                f"{note.removeprefix(WRITING)} could not be written ({reason}). Name another place."
            )
    return None


def _is_of_a_library(error: BaseException) -> bool:
    """DuckDB's and Polars' errors carry the words of the system; a RuntimeError that speaks of permission may not."""
    return type(error).__module__.partition(".")[0].lstrip("_") in ("duckdb", "polars") or isinstance(
        error, OSError
    )


def _told(error: BaseException, folder: Path, what: str, remedy: str) -> ArtefactError:
    file = _file(error) or str(folder)
    reason = " ".join(
        (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).split()
    )
    return ArtefactError(
        f"{what}: {file} could not be written ({reason[:160]}); {_free(folder)} free in {folder}. {remedy}, then "
        "run the same command again: what is finished is kept."
    )


def _file(error: BaseException) -> str | None:
    for note in getattr(error, "__notes__", ()):
        if note.startswith(WRITING):
            return str(note.removeprefix(WRITING))
    named = error.filename if isinstance(error, OSError) else None
    return str(named) if named else None


def _free(folder: Path) -> str:
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return f"{shutil.disk_usage(existing).free / 1e6:,.0f} MB"
