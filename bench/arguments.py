"""What the benchmarks' commands take alike."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def names_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads `--only`: some of `known`, with commas between."""

    def read(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not known; choose of {', '.join(known)}")
        return chosen

    return read
