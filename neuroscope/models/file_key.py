"""How what is made from a file is named in the cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def file_key(path: Path) -> str:
    """Another path, size or time of change is another file."""
    stat = path.stat()
    known_by = os.fsencode(path.resolve()) + f"\0{stat.st_size}\0{stat.st_mtime_ns}".encode()
    return hashlib.sha256(known_by).hexdigest()[:16]
