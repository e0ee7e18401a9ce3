"""Which configured pairing uses what in the caches."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from neuroscope import settings, sources
from neuroscope.errors import NeuroscopeError
from neuroscope.models.file_key import file_key
from neuroscope.settings import Settings
from neuroscope.sources import Source


@dataclass(slots=True)
class Owners:
    """Places and beginnings of names -> the pairings that use them."""

    paths: dict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))
    models: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    exports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    repositories: dict[str, Path] = field(default_factory=dict)

    def of_path(self, path: Path) -> tuple[str, ...]:
        """Of a folder, or of one above it."""
        return tuple(sorted(set().union(*(self.paths.get(place, set()) for place in (path, *path.parents)))))

    def of_model_file(self, name: str) -> tuple[str, ...]:
        """Of a file that was made from a model's, by its name."""
        found = (names for start, names in self.models.items() if name.startswith(start))
        return tuple(sorted(set().union(*found)))

    def of_export(self, stem: str) -> tuple[str, ...]:
        return tuple(sorted(self.exports.get(stem, ())))

    def hub_folders(self) -> dict[str, Path]:
        """The hub's repositories of all pairings, by the names that sources are written with."""
        return self.repositories


def find_owners() -> Owners:
    """Reads every pairing; one that cannot be read owns nothing."""
    owners = Owners()
    chosen: list[Settings] = []
    for name in settings.pairings():
        with suppress(NeuroscopeError):
            chosen.append(settings.load(name))
    for settled in chosen:
        _add(owners, settled)
    return owners


def _add(owners: Owners, settled: Settings) -> None:
    pairing = settled.pairing
    uris = [pairing.model, pairing.sae.uri, *(source.source for source in settled.corpus.sources)]
    for uri in uris:
        with suppress(NeuroscopeError):
            _add_source(owners, sources.parse(uri), pairing.name)
    with suppress(NeuroscopeError, OSError):
        here = sources.cached(pairing.model).path
        if here is not None and here.suffix == ".gguf":
            owners.models[f"{here.stem}-{file_key(here)}"].add(pairing.name)
    owners.exports[pairing.export_name].add(pairing.name)
    if pairing.neuronpedia is not None:
        published = sources.batches_folder(
            f"{settled.neuronpedia.base_url.rstrip('/')}/v1/{pairing.neuronpedia.model_id}/{pairing.neuronpedia.sae_id}"
        )
        owners.paths[published].add(pairing.name)


def _add_source(owners: Owners, source: Source, pairing: str) -> None:
    if source.kind == "hf":
        folder = sources.hub_folder(source)
        owners.repositories[f"hf://{'datasets/' if source.dataset else ''}{source.name}"] = folder
        owners.paths[folder].add(pairing)
    elif source.kind == "pypi":
        folder = sources.cache_dir() / "sources" / "pypi" / f"{source.name}-{source.revision}"
        owners.paths[folder].add(pairing)
