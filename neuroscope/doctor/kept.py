"""What is cached for the pairing in use, and how large the cache is as a whole."""

from __future__ import annotations

from neuroscope.doctor.check import Check
from neuroscope.doctor.words import human_bytes
from neuroscope.settings import Settings


def cache_check(settings: Settings | None) -> Check:
    """Sizes; `neuroscope cache show` has every entry."""
    from neuroscope import sources
    from neuroscope.cache import find_entries

    entries = find_entries()
    whole = sum(entry.size for entry in entries)
    words = f"{human_bytes(whole)} in {len(entries)} entries of {sources.cache_dir()} and the hub's cache"
    if settings is not None:
        name = settings.pairing.name
        own = sum(entry.size for entry in entries if name in entry.pairings)
        words += f", {human_bytes(own)} of it for {name}"
    return Check(
        "cache",
        "ok",
        f"{words} (`neuroscope cache show`)" if entries else f"nothing in {sources.cache_dir()} yet",
    )
