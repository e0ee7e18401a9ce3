"""Files of our own on disk: where the cache is, how bytes are compared, how a file appears whole or not at
all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from neuroscope.errors import SourceError

WRITING = "while writing "
"""Begins the note on an error that kept a file from being written; libraries leave its name out."""


def cache_dir() -> Path:
    """`NEUROSCOPE_CACHE`, else `neuroscope` below `XDG_CACHE_HOME` or ~/.cache."""
    if own := os.environ.get("NEUROSCOPE_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "neuroscope"


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path, *, at_most: int | None = None) -> str:
    """The UTF-8 text of a regular file: a pipe would wait for a writer, perhaps for ever.

    Raises OSError, and ValueError for other bytes or for more than `at_most`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with open(descriptor, encoding="utf-8") as file:
        if at_most is not None and found.st_size > at_most:
            raise ValueError(f"it has {found.st_size:,} bytes, {at_most:,} at most are read")
        return file.read()


def folder_sha256(path: Path, *, of_file: Callable[[Path], str] = file_sha256) -> str:
    """SHA-256 over a folder's files: a line `sha256  relative/name` for each, sorted by name."""
    path = Path(path)
    files = sorted(entry.relative_to(path).as_posix() for entry in path.rglob("*") if entry.is_file())
    lines = "".join(f"{of_file(path / name)}  {name}\n" for name in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def known_sha256(path: Path) -> str:
    """As `file_sha256`, read from a note in the cache while the file's size and time of change stay."""
    path = Path(path).resolve()
    state = path.stat()
    seen = f"{path} {state.st_size} {state.st_mtime_ns}"
    note = _note(path)
    with suppress(OSError, ValueError):
        recorded, _, sha256 = os.fsdecode(note.read_bytes()).rpartition(" ")
        if recorded == seen and len(sha256) == 64:
            return sha256
    sha256 = file_sha256(path)
    # A note saves time only: a cache that cannot be written is no failure here.
    with suppress(OSError), replace_atomically(note) as temporary:
        temporary.write_bytes(os.fsencode(f"{seen} {sha256}"))
    return sha256


def path_sha256(path: Path) -> str:
    """`known_sha256` of a file, `folder_sha256` of a folder whose files are known."""
    return folder_sha256(path, of_file=known_sha256) if path.is_dir() else known_sha256(path)


def forget_sha256(path: Path) -> None:
    """Drops the note of a file that is removed or replaced."""
    with suppress(OSError):
        _note(path).unlink(missing_ok=True)


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """A unique path beside `path`, not yet a file: what the block writes there is renamed to it when the
    block ends well, removed when it raises.

    Readers see the old file or the new one, whole. The bytes are on disk before the name is.
    """
    path = Path(path)
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    except Exception as error:
        error.add_note(f"{WRITING}{path}")
        raise
    finally:
        with suppress(OSError):  # it is gone, or its folder could never be
            temporary.unlink()


@contextmanager
def replace_directory_atomically(path: Path) -> Iterator[Path]:
    """As `replace_atomically`, for a folder. When another process was first, its folder stays and ours is
    dropped.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    temporary.mkdir()
    try:
        yield temporary
        for entry in temporary.rglob("*"):
            if entry.is_file():
                _flush(entry)
        try:
            temporary.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        _flush(path.parent)
    except Exception as error:
        error.add_note(f"{WRITING}{path}")
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """One process works, the others wait; a killed one lets go."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def check_pin(found: str, uri: str, expected: str | None, *, remedy: str) -> None:
    """Raises SourceError with both sums when `expected` is another SHA-256 than the one found."""
    if expected is not None and found != expected:
        raise SourceError(
            f"{uri}: the bytes are not the pinned ones (sha256 {found}, expected {expected}). {remedy}"
        )


def _note(path: Path) -> Path:
    return cache_dir() / "sha256" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
