"""How many files this process may have open, and so how many streams it can hold: past that, accepting would hang."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

OPEN_FILES = 65_536
RESERVED = 200
"""For the model's files, the database, and requests that are no streams."""


def room_for_streams(wanted: int) -> int:
    """Raise the soft limit, usually 1,024, as far as it may be. `wanted` streams, or how many fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    room = max(1, allowed - RESERVED)
    if room < wanted:
        log.warning(
            "This process may open %d files, so at most %d streams are served instead of the %d of "
            "serve.max_streams. Raise the hard limit (ulimit -Hn, or LimitNOFILE of the service) to %d.",
            allowed,
            room,
            wanted,
            wanted + RESERVED,
        )
    return min(wanted, room)
