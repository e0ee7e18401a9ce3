"""Who holds an entry at this moment: a run of the pipeline, a server, a download, or any process that has it open.

Locks say so everywhere; open files and running servers are read from /proc, which only Linux has.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from neuroscope import jobs, settings
from neuroscope.cache.entries import Entry
from neuroscope.errors import NeuroscopeError
from neuroscope.sources import hub_cache_dir

SERVER = "neuroscope.wsgi"
"""Stands in the command line of every server."""
PLACES = ("NEUROSCOPE_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HOME")
"""Variables that say where caches lie: a server with other ones has files of its own."""


@dataclass(slots=True)
class _Processes:
    """What the user's other processes do."""

    open_files: dict[str, int] = field(default_factory=dict)
    """Path -> a process that has it open or mapped."""
    servers: dict[str, int] = field(default_factory=dict)
    """Pairing -> the process that serves it."""


def held_by(entries: Iterable[Entry], proc: Path = Path("/proc")) -> dict[str, str]:
    """Name of an entry -> who holds it, in words; entries that nobody holds are left out."""
    processes, runs = _look(proc), _runs()
    return {entry.name: words for entry in entries if (words := _holder(entry, processes, runs)) is not None}


def _holder(entry: Entry, processes: _Processes, runs: dict[str, str]) -> str | None:
    for pairing in entry.pairings:
        if pairing in runs:
            return f"a run of {pairing} is at work (process {runs[pairing]})"
        if pairing in processes.servers:
            return f"a server of {pairing} is running (process {processes.servers[pairing]})"
    if any(is_locked(lock) for lock in _locks(entry)):
        return "it is being fetched or made"
    beginnings = tuple(f"{path}{os.sep}" for path in entry.paths)
    exact = {str(path) for path in entry.paths}
    for file, process in processes.open_files.items():
        if file in exact or file.startswith(beginnings):
            return f"process {process} has it open"
    return None


def _locks(entry: Entry) -> Iterator[Path]:
    if entry.lock is not None:
        yield entry.lock
    if entry.shared:
        for path in entry.paths:
            yield from (hub_cache_dir() / ".locks" / path.name).glob("*.lock")


def is_locked(lock: Path) -> bool:
    """Whether somebody holds a lock that this project or the hub's client takes."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _runs() -> dict[str, str]:
    found = {}
    for name in settings.pairings():
        with suppress(NeuroscopeError):
            if (process := jobs.running(settings.results_folder(name))) is not None:
                found[name] = process
    return found


def _look(proc: Path) -> _Processes:
    found = _Processes()
    for folder in proc.glob("[0-9]*"):
        process = int(folder.name)
        if process == os.getpid():
            continue
        with suppress(OSError):  # ended meanwhile, or somebody else's
            _look_at(folder, process, found)
    return found


def _look_at(folder: Path, process: int, found: _Processes) -> None:
    if SERVER in (folder / "cmdline").read_bytes().decode(errors="replace") and (served := _served(folder)):
        found.servers[served] = process
    for descriptor in (folder / "fd").iterdir():
        with suppress(OSError):
            found.open_files[os.readlink(descriptor)] = process
    for line in (folder / "maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        if (start := line.find("/")) > 0:
            found.open_files[line[start:]] = process


def _served(folder: Path) -> str | None:
    """The pairing of a server that has its files from the same caches as this process."""
    environment = (folder / "environ").read_bytes().decode(errors="surrogateescape").split("\0")
    named = dict(line.partition("=")[::2] for line in environment)
    if any(named.get(place) != os.environ.get(place) for place in PLACES):
        return None
    if pairing := named.get("NEUROSCOPE_PAIRING"):
        return pairing
    with suppress(NeuroscopeError):
        return settings.load().pairing.name
    return None
