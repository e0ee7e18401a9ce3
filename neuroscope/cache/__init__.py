"""What Neuroscope has put on this disk beside the results, by name; and removing it without touching anything else.

Found by the shapes of the names that each part of the project gives its files: a folder of the user's that
NEUROSCOPE_CACHE happens to name holds entries only where such names are. Symbolic links are not followed.
"""

from __future__ import annotations

from neuroscope.cache.clearing import clear
from neuroscope.cache.entries import Entry, find_entries
from neuroscope.cache.holders import held_by

__all__ = ["Entry", "clear", "find_entries", "held_by"]
