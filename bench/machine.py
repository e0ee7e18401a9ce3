"""What figures depend on: processor, memory, versions, and how quiet the machine was. No name and no path of it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def machine(packages: Sequence[str]) -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "architecture": platform.machine(),
        "vectors": vectors(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version for name in packages if (version := installed(name))},
        "load_before": round(os.getloadavg()[0], 2),
    }


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def vectors() -> str | None:
    """The widest vector instructions, where the system tells."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return None
    return next((name for name in ("avx512f", "avx2", "asimd") if name in flags), None)
