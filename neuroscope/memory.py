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
    for limit_file, used_file in (
        (cgroup / "memory.max", cgroup / "memory.current"),
        (cgroup / "memory/memory.limit_in_bytes", cgroup / "memory/memory.usage_in_bytes"),
    ):
        limit = _number(limit_file)
        if limit is not None and limit < total:
            free = limit - (_number(used_file) or 0)
            available = free if found.available is None else min(free, found.available)
            return Memory(max(available, 0), limit, "by the container's limit")
    return found


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
