"""How what is made from a file is named in the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path


def file_key(path: Path) -> str:
    """Another path, size or time of change is another file."""
    stat = path.stat()
    return hashlib.sha256(f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()[:16]
