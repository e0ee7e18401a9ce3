"""The entries of the cache: files and folders that belong together, with their size and who uses them."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neuroscope.cache.owners import Owners, find_owners
from neuroscope.sources import cache_dir, hub_cache_dir

_KEY = r"[0-9a-f]{16}"
_CONVERTED = re.compile(rf".+-{_KEY}(-tokenizer)?")
_REQUANTISED = re.compile(rf".+-{_KEY}-[a-z0-9_]+\.gguf")
_TRIAL = re.compile(rf"survived-{_KEY}-[\w.+!-]+")
_COMPILED = re.compile(rf"\w+-{_KEY}\.so")
_CHAT_PART = re.compile(rf"({_KEY})-\d{{6,}}\.json")
_NOTE = re.compile(r"[0-9a-f]{32}")
_BATCH = re.compile(r"batch-\d+\.jsonl\.gz")
_WHEEL = re.compile(r"[A-Za-z0-9][\w.-]*-[A-Za-z0-9][\w.!+-]*")
_UNFINISHED = re.compile(r"\..+\.(\d+)-[0-9a-f]{8}\.tmp")
_EXPORTS = {"calibration": "_stats.json", "labels": "_autointerp.json"}
_GROUPS = ("converted", "requantised", "llamacpp", "native", "sha256", "chat", "calibration", "labels")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is shown as one line and cleared as one thing."""

    name: str
    kind: str
    paths: tuple[Path, ...]
    """Files and folders, none of them a link, each directly in a folder whose layout is known."""
    size: int
    """Bytes of the regular files in them."""
    used_at: float
    """Seconds since the epoch when a file of it was last read or written, as far as the disk keeps that."""
    pairings: tuple[str, ...]
    """The configured pairings that use it; a later run of theirs makes or fetches it again."""
    shared: bool = False
    """Whether programs of others use it too: the hub's cache is everybody's."""
    lock: Path | None = None
    """Held by whoever is making it."""


def find_entries() -> list[Entry]:
    """Everything that is in the cache, and the hub's repositories of configured pairings; by kind, then by name."""
    root, owners = cache_dir(), find_owners()
    found = [
        *_wheels(root, owners),
        *_batches(root, owners),
        *_converted(root, owners),
        *_requantised(root, owners),
        *_small(root, owners),
        *_unfinished(root),
        *_hub(owners),
    ]
    return sorted(found, key=lambda entry: (entry.kind, entry.name))


def _wheels(root: Path, owners: Owners) -> Iterator[Entry]:
    folder = _inside(root, "sources", "pypi")
    for path in _children(folder):
        if path.is_dir() and _WHEEL.fullmatch(path.name):
            lock = path.with_name(f".{path.name}.lock")
            yield _entry(
                f"sources/pypi/{path.name}", "files of a wheel", [path], owners.of_path(path), lock=lock
            )


def _batches(root: Path, owners: Owners) -> Iterator[Entry]:
    top = _inside(root, "sources", "https")
    if top is None:
        return
    for folder, _, names in os.walk(top):  # follows no links
        if any(_BATCH.fullmatch(name) for name in names):
            path = Path(folder)
            lock = path.with_name(f".{path.name}.lock")
            name = path.relative_to(root).as_posix()
            yield _entry(name, "published data", [path], owners.of_path(path), lock=lock)


def _converted(root: Path, owners: Owners) -> Iterator[Entry]:
    for path in _children(_inside(root, "converted")):
        if path.is_dir() and _CONVERTED.fullmatch(path.name):
            yield _entry(f"converted/{path.name}", "converted model", [path], owners.of_model_file(path.name))


def _requantised(root: Path, owners: Owners) -> Iterator[Entry]:
    for path in _children(_inside(root, "requantised")):
        if path.is_file() and _REQUANTISED.fullmatch(path.name):
            lock = path.with_name(f".{path.name}.lock")
            used_by = owners.of_model_file(path.name)
            yield _entry(f"requantised/{path.name}", "model in fewer bits", [path], used_by, lock=lock)


def _small(root: Path, owners: Owners) -> Iterator[Entry]:
    """Notes, compiled code, exports and half-written chat corpora."""
    for group, pattern, kind in (
        ("sha256", _NOTE, "notes of checksums"),
        ("llamacpp", _TRIAL, "llama.cpp's trials"),
        ("native", _COMPILED, "compiled code"),
    ):
        files = [
            path
            for path in _children(_inside(root, group))
            if path.is_file() and pattern.fullmatch(path.name)
        ]
        if files:
            yield _entry(group, kind, files, ())
    conversations: dict[str, list[Path]] = defaultdict(list)
    for path in _children(_inside(root, "chat")):
        if path.is_file() and (part := _CHAT_PART.fullmatch(path.name)):
            conversations[part[1]].append(path)
    for key, files in conversations.items():
        yield _entry(f"chat/{key}", "conversations a model wrote", files, ())
    for group, ending in _EXPORTS.items():
        for path in _children(_inside(root, group)):
            if path.is_file() and path.name.endswith(ending):
                stem = path.name.removesuffix(ending)
                yield _entry(f"{group}/{path.name}", "copy of results", [path], owners.of_export(stem))


def _unfinished(root: Path) -> Iterator[Entry]:
    """What a killed process left, here and in the folders of the groups."""
    for parts in ((), ("sources", "pypi"), *((group,) for group in _GROUPS)):
        for path in _children(_inside(root, *parts)):
            found = _UNFINISHED.fullmatch(path.name)
            if found and not _is_alive(int(found[1])):
                yield _entry(path.relative_to(root).as_posix(), "left by a killed process", [path], ())


def _hub(owners: Owners) -> Iterator[Entry]:
    root = hub_cache_dir()
    for uri, folder in sorted(owners.hub_folders().items()):
        leftovers = [path for path in _children(root) if _is_leftover(path, folder)]
        paths = [path for path in (folder, *leftovers) if path.is_dir() and not path.is_symlink()]
        if paths:
            used_by = owners.of_path(folder)
            yield _entry(uri, "repository of the hub", paths, used_by, shared=True)


def _is_leftover(path: Path, folder: Path) -> bool:
    found = _UNFINISHED.fullmatch(path.name)
    return (
        bool(found)
        and path.name.startswith(f".{folder.name}.")
        and not _is_alive(int(found[1] if found else 0))
    )


def _inside(root: Path, *parts: str) -> Path | None:
    """The folder below `root`, or None where it is not there or reached through a link."""
    folder = root
    for part in parts:
        folder = folder / part
        if folder.is_symlink():
            return None
    return folder if folder.is_dir() else None


def _children(folder: Path | None) -> list[Path]:
    """Sorted; without links."""
    if folder is None or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def _entry(
    name: str,
    kind: str,
    paths: list[Path],
    pairings: tuple[str, ...],
    *,
    shared: bool = False,
    lock: Path | None = None,
) -> Entry:
    size, used_at = 0, 0.0
    for file in _files(paths):
        try:
            found = file.lstat()
        except OSError:  # removed meanwhile
            continue
        size += found.st_size
        used_at = max(used_at, found.st_atime, found.st_mtime)
    return Entry(name, kind, tuple(paths), size, used_at, pairings, shared, lock)


def _files(paths: list[Path]) -> Iterator[Path]:
    """Regular files; a link is not its target's bytes."""
    for path in paths:
        if path.is_file():
            yield path
            continue
        for folder, _, names in os.walk(path):
            yield from (
                file for name in names if not (file := Path(folder, name)).is_symlink() and file.is_file()
            )


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return process > 0
