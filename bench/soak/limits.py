"""How many files this machine lets one process open."""

from __future__ import annotations

import resource

SPARE = 200


def raise_open_files(wanted: int) -> None:
    """Let this process open `wanted` sockets. Exits, with the command to give, when it may not."""
    wanted += SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(
            f"This needs {wanted:,} open files and may have {hard:,}. Raise the hard limit (`ulimit -Hn {wanted}` "
            "as root, or LimitNOFILE of the service), or run with fewer --clients."
        )
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
