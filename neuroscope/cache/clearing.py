"""Removes an entry: out of its place in one step, then for good, so that nothing half-removed is taken for whole."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroscope.cache.entries import Entry
from neuroscope.errors import SourceError


def clear(entry: Entry) -> int:
    """Removes the files of `entry` and returns their bytes. Links are removed as links, never what they lead to.

    A process that is killed in between leaves a file that no reader looks at and that the next look lists.
    Raises SourceError when somebody is making the entry, or the disk refuses.
    """
    with _alone(entry):
        for path in entry.paths:
            if path.is_symlink() or not os.path.lexists(path):
                continue  # replaced by a link, or gone, since it was looked at
            try:
                _remove(path)
            except OSError as error:
                raise SourceError(
                    f"{entry.name}: {error.filename or path} cannot be removed: {error.strerror or error}. "
                    "What could be removed is gone; run the same command again for the rest."
                ) from error
    return entry.size


def _remove(path: Path) -> None:
    aside = path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    path.rename(aside)
    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()


@contextmanager
def _alone(entry: Entry) -> Iterator[None]:
    """Holds the lock of whoever would make the entry, so that none begins meanwhile."""
    if entry.lock is None:
        yield
        return
    try:
        file = entry.lock.open("a")
    except OSError as error:
        raise SourceError(f"{entry.name}: {entry.lock} cannot be opened: {error.strerror}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SourceError(f"{entry.name}: it is being fetched or made. Wait for its end.") from error
        yield
