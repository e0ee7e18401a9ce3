"""A chunk's partial results on disk: NumPy's NPZ, written whole or not at all, read array by array.

What the arrays mean is `collect`'s business.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from neuroscope.errors import ArtefactError
from neuroscope.examples import Firings
from neuroscope.sources import replace_atomically
from neuroscope.sweep.windows import ChunkTokens

Arrays = dict[str, NDArray[Any]]

REMEDY = "Delete it, then run the sweep again with: snakemake --cores 4 --forcerun shard calibration_shard -- labels"
"""A shard's own output is whole, so that nothing else makes Snakemake do it again."""


def write_chunk(path: Path, arrays: Arrays, notes: Mapping[str, Any]) -> None:
    """Write a chunk's file, whole or not at all; `notes` is its JSON part."""
    text = json.dumps(notes, sort_keys=True, allow_nan=False)
    with replace_atomically(path) as temporary, temporary.open("wb") as file:
        np.savez(file, notes=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore[arg-type]


DAMAGE = (KeyError, OSError, ValueError, EOFError, zipfile.BadZipFile)
"""What NumPy raises for a file that is cut short or altered."""


class ChunkFile:
    """An open chunk file: arrays are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        """Raises ArtefactError when the file is missing or damaged."""
        self.path = path
        self._closing = ExitStack()
        try:
            # NumPy leaves a file open that it cannot read, so it is opened here.
            file = self._closing.enter_context(path.open("rb"))
            self._arrays = self._closing.enter_context(np.load(file, allow_pickle=False))
        except DAMAGE as error:
            self._closing.close()
            raise ArtefactError(f"{path} is missing or damaged ({error}). {REMEDY}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = self._arrays[name]
        except DAMAGE as error:
            raise ArtefactError(f"{self.path} is damaged at {name!r} ({error}). {REMEDY}") from error
        return array

    def notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = json.loads(self["notes"].tobytes())
        return notes

    def stats(self) -> Arrays:
        """The form that `FeatureStats.merge_sparse` takes."""
        names = [name.removeprefix("stats_") for name in self._arrays.files if name.startswith("stats_")]
        return {name: self[f"stats_{name}"] for name in names}

    def firings(self, kind: str, chunk: int) -> Firings:
        """Candidates of one kind, marked as the plan's chunk number `chunk`."""
        feature, key, activation, token = (
            self[f"{kind}_{name}"] for name in ("feature", "key", "activation", "token")
        )
        return Firings(feature, key, activation, token, np.full(len(feature), chunk, np.int32))

    def tokens(self) -> ChunkTokens:
        lengths = self["lengths"]
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        position = (np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)).astype(
            np.int32
        )
        return ChunkTokens(self["ids"], self["segment"], document, position, lengths)
