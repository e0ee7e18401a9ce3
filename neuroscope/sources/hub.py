"""Sources on the Hugging Face hub, fetched by its own client: cache, token, endpoint and offline mode are the
user's.

The client does not compare the bytes it got with the hashes that the hub publishes; that is done here, once a
file.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path

from neuroscope.errors import SourceError
from neuroscope.sources.content import impostor
from neuroscope.sources.files import check_pin, forget_sha256, known_sha256, path_sha256
from neuroscope.sources.hub_errors import client_errors, explain, is_cut_connection, missing_file
from neuroscope.sources.uri import Resolved, Source

MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
"""Of a model's repository only these, in its top folder: weights once, no other framework's copies."""
OLDER_WEIGHTS = ["*.bin"]
"""Taken too where there are no safetensors."""
BELOW = ["*/*"]
"""Left out: what is not in the top folder."""
ATTEMPTS = 3
"""Times a download is begun when its connection is cut."""
STALE_S = 3600
"""Seconds without a write after which a partial file belongs to nobody."""


def resolve_hub(source: Source, *, progress: bool) -> Resolved:
    """A file or folder of a repository at one commit, its bytes checked against the hub's hashes.

    Raises SourceError: gated, missing, unreachable, cut, full disk or wrong bytes, each with what to do.
    """
    started = time.time() - 1  # file systems keep time more coarsely than this clock
    path = _fetch(source, progress)
    damaged = _damaged_files(path)
    if damaged and all(file.stat().st_mtime < started for file, _ in damaged):
        for file, _ in damaged:
            _forget(file)
        path = _fetch(source, progress)
        damaged = _damaged_files(path)
    if damaged:
        file, reason = damaged[0]
        content = impostor(file)
        for broken, _ in damaged:
            _forget(broken)
        raise SourceError(
            f"{source.uri}: {file.name} is {content or 'not the bytes that the hub publishes'} ({reason}). "
            "It was removed. Run the same command again; if it stays so, a proxy or the mirror in "
            "HF_ENDPOINT changes files."
        )
    sha256 = path_sha256(path) if source.sha256 or path.is_file() else None
    if sha256 is not None:
        check_pin(sha256, source.uri, source.sha256, remedy="Correct the pin, or name the pinned revision.")
    return Resolved(path, source.uri, _commit(path), sha256)


def _fetch(source: Source, progress: bool) -> Path:
    """Through the cache to a file's or folder's path; a cut connection is tried again. Raises SourceError."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _progress_bars(progress), _full_disk_is_an_error():
                path = _download(source)
        except client_errors() as error:
            if attempt == ATTEMPTS or not is_cut_connection(error):
                raise explain(error, source) from error
        else:
            break
    _drop_partial_files(path)
    if not path.exists():
        raise missing_file(source)
    return path


def _download(source: Source) -> Path:
    """Through the cache, by the hub's client, which resumes what ends early and raises what is reset."""
    from huggingface_hub import hf_hub_download, snapshot_download

    kind = "dataset" if source.dataset else "model"
    revision = source.revision

    def snapshot(wanted: list[str], unwanted: list[str] | None = None) -> Path:
        return Path(
            snapshot_download(
                source.name,
                repo_type=kind,
                revision=revision,
                allow_patterns=wanted,
                ignore_patterns=unwanted,
            )
        )

    if source.path is None:
        folder = snapshot(MODEL_FILES, BELOW)
        if any(folder.glob("*.safetensors")):
            return folder
        return snapshot([*MODEL_FILES, *OLDER_WEIGHTS], BELOW)
    if source.path.endswith("/"):
        return snapshot([f"{source.path}*"]) / source.path
    return Path(hf_hub_download(source.name, source.path, repo_type=kind, revision=revision))


def wanted_files(source: Source, names: Iterable[str]) -> set[str]:
    """Of a repository's `names` those that make up the folder `source`: what `resolve_hub` fetches."""
    if source.path is not None:
        return {name for name in names if name.startswith(source.path)}
    top = [name for name in names if not fnmatch(name, BELOW[0])]
    wanted = _matching(top, MODEL_FILES)
    return (
        wanted
        if any(name.endswith(".safetensors") for name in wanted)
        else (wanted | _matching(top, OLDER_WEIGHTS))
    )


def _matching(names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    return {name for name in names if any(fnmatch(name, pattern) for pattern in patterns)}


def _drop_partial_files(path: Path) -> None:
    """Removes what killed downloads left in the repository's cache.

    The client gives a partial file a name of its own (`HASH.RANDOM.incomplete`) and never looks at it again,
    so that it would only fill the disk. One that was written to in the last hour may belong to a live process.
    """
    if "snapshots" not in path.parts:
        return
    repository = Path(*path.parts[: path.parts.index("snapshots")])
    for partial in repository.glob("blobs/*.*.incomplete"):
        with suppress(OSError):
            if time.time() - partial.stat().st_mtime > STALE_S:
                partial.unlink()


def _damaged_files(path: Path) -> list[tuple[Path, str]]:
    """Files whose bytes are not those of the hash in their blob's name, each with the reason."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return [(file, reason) for file in files if (reason := _damage(file))]


def _damage(file: Path) -> str | None:
    if not file.is_symlink():
        return None
    published = Path(os.readlink(file)).name
    if re.fullmatch(r"[0-9a-f]{64}", published):
        found = known_sha256(file)
        return None if found == published else f"sha256 {found}, published {published}"
    if re.fullmatch(r"[0-9a-f]{40}", published):
        if (found := _git_sha1(file)) != published:
            return f"git hash {found}, published {published}"
        content = impostor(file)
        return f"{file.stat().st_size} bytes" if content else None
    return None


def _git_sha1(file: Path) -> str:
    """The hash git gives a file: SHA-1 over `blob SIZE NUL` and the content."""
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _forget(file: Path) -> None:
    """Removes a file from the hub's cache: the name in the snapshot and the blob it points at."""
    blob = file.resolve()
    file.unlink(missing_ok=True)
    blob.unlink(missing_ok=True)
    forget_sha256(blob)


def _commit(path: Path) -> str | None:
    """The commit a path of the cache belongs to: the folder below `snapshots`."""
    parts = path.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else None


@contextmanager
def _progress_bars(shown: bool) -> Iterator[None]:
    """Bars on stderr, or none; how the user set them is restored."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


@contextmanager
def _full_disk_is_an_error() -> Iterator[None]:
    """The client only warns before it fills the disk; a download that cannot fit is not begun."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Not enough free disk space")
        yield
