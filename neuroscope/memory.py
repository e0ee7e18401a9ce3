"""How much memory there is, and how much of it is free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of this machine, or of the container that the process is in."""

    available: int | None
    total: int
    limit: str = ""
    """What sets the limit, where it is not the machine."""


def memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Memory:
    """What there is and what is free. Where nothing says what is free, that is None."""
    fields = dict(_meminfo(proc))
    total = fields.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = Memory(fields.get("MemAvailable"), total)
    for limit_file, used_file in _limits(proc, cgroup):
        limit = _number(limit_file)
        if limit is not None and limit < total:
            free = max(limit - (_number(used_file) or 0), 0)
            available = free if found.available is None else min(free, found.available)
            found = Memory(available, min(limit, found.total), "by the container's limit")
    return found


def _limits(proc: Path, cgroup: Path) -> Iterator[tuple[Path, Path]]:
    """Files of a limit and of what is used of it: of the process's own groups, and of every one around them.

    In a container the groups may be told as the machine has them, and only the outermost be there.
    """
    try:
        told = (proc / "self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        told = []
    for line in ("0::/", "0:memory:/", *told):
        number, kinds, path = line.split(":", 2)
        own = Path(path.lstrip("/"))
        for place in (own, *own.parents):
            if "memory" in kinds.split(","):
                folder = cgroup / "memory" / place
                yield folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes"
            elif number == "0":
                yield cgroup / place / "memory.max", cgroup / place / "memory.current"


def _meminfo(proc: Path) -> Iterator[tuple[str, int]]:
    try:
        lines = (proc / "meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, value = line.partition(":")
        number = value.strip().partition(" ")[0]
        if number.isdigit():
            yield name, int(number) * 1024


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
