"""The file behind a connection, held open: a replaced file can still be read, one changed in place must not be.

Readers keep the pages they have read. Bytes that another program writes into the same file would mix with those, so
that one feature could be shown with another's row.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from neuroscope.errors import ArtefactError, made_anew

CHUNK = 1 << 20

State = tuple[int, int, int, int]


class HeldFile:
    """Raises ArtefactError when `path` is not a regular file that can be opened, and says what it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256: str | None = None
        """Of the bytes that were believed; None where nothing vouched for them."""
        self._descriptor = _open(path)
        self._state = _state(os.fstat(self._descriptor))
        self._is_changed = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def is_whole(self) -> bool:
        """Whether the bytes are still those that were opened, whatever the path leads to by now.

        A file whose times alone have changed is read again, once; Snakemake touches what its jobs have written.
        """
        if self._is_changed or self._descriptor < 0:
            return not self._is_changed
        now = _state(os.fstat(self._descriptor))
        if now != self._state:
            has_other_size = now[2] != self._state[2]
            self._is_changed = has_other_size or self.sha256 is None or self.digest() != self.sha256
            self._state = now
        return not self._is_changed

    def is_at_its_path(self) -> bool:
        """Whether the path still leads to this very file, unchanged."""
        try:
            return _state(os.stat(self.path)) == self._state
        except OSError:
            return False

    def digest(self) -> str:
        """Hexadecimal SHA-256 of the open file's bytes."""
        # By the descriptor that is held: closing another one would drop this process's locks on the file.
        digest, offset = hashlib.sha256(), 0
        while piece := os.pread(self._descriptor, CHUNK, offset):
            digest.update(piece)
            offset += len(piece)
        return digest.hexdigest()


def _open(path: Path) -> int:
    try:
        # Asked of what is open, not of the name: a pipe may take the file's place, and would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise ArtefactError(
            f"There is no results database at {path}. Make it with `snakemake --cores 4 labels`."
        ) from error
    except OSError as error:
        raise ArtefactError(f"{path} cannot be opened: {error.strerror}. {made_anew()}") from error
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    what = "a folder" if stat.S_ISDIR(kind) else "no file that can be read twice"
    raise ArtefactError(f"{path} is {what}, not a results database. {made_anew()}")


def _state(found: os.stat_result) -> State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
