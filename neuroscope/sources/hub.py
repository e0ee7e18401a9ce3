"""Sources on the Hugging Face hub, through its own client."""

from __future__ import annotations

from neuroscope.sources.uri import Resolved, Source


def resolve_hub(source: Source, *, progress: bool) -> Resolved:
    raise NotImplementedError
