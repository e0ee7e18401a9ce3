"""Sources inside wheels of the Python package index, through the user's own pip."""

from __future__ import annotations

from pathlib import Path

from neuroscope.sources.uri import Resolved, Source


def resolve_index(source: Source, *, cache: Path, progress: bool) -> Resolved:
    raise NotImplementedError
