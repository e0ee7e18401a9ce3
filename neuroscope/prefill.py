"""How prompts run: in cells on a fixed grid, those that an earlier prompt ran before it taken from what was kept.

Only whole cells that ran as cells are used again. The answer's tokens, which ran one by one and so are rounded
otherwise, run anew as part of the next prompt: a seed gives the same text whatever was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from neuroscope.errors import ModelError
from neuroscope.models.backend import Backend, Forward
from neuroscope.prefix import Cell, PrefixStore, key
from neuroscope.sae.autoencoder import Reading
from neuroscope.sae.reading import FeatureReader

PREFILL_CELL = 64
"""Prompts run in cells of this many positions: what follows a cell never changes it."""


class Prefill:
    """Runs prompts on `backend`, one at a time. Nothing is copied where its cache holds the beginning already."""

    def __init__(self, backend: Backend, store: PrefixStore) -> None:
        self.backend = backend
        self.store = store
        self._path: list[Cell] = []  # the whole cells at the start of the cache
        self._current: Run | None = None

    def begin(self, ids: Sequence[int]) -> Run:
        """Cut the cache back to what can be used for `ids` and fill it up from the store; ends the run before."""
        end = len(ids) - PREFILL_CELL  # the last id is always left to run: its logits are wanted
        grid = [ids[at : at + PREFILL_CELL] for at in range(0, end, PREFILL_CELL)]
        if self.store.capacity == 0:
            grid = []
        kept = self.store.find(grid)
        shared = 0
        for cell, cell_ids in zip(self._path, grid, strict=False):
            if cell.ids != key(cell_ids):
                break
            shared += 1
        self._cut(shared)
        if len(kept) > len(self._path):
            self._restore(kept)
        self._current = Run(self, ids, self._path)
        return self._current

    def read(self, cell: Cell, reader: FeatureReader) -> list[Reading]:
        """The features of the positions of `cell`."""
        readings = cell.read(reader)
        self.store.recount(cell)
        return readings

    def forward(self, run: Run, ids: Sequence[int]) -> Forward:
        """Append `ids`. Raises ModelError when `run` is over."""
        if run is not self._current:
            raise ModelError("Another prompt ran on this engine before the generation was over.")
        try:
            return self.backend.forward(ids)
        except BaseException as error:
            self._forget(error)
            raise

    def keep(self, start: int, cell: Cell) -> Cell:
        """Note that the whole cell `cell` has run at `start`; the cell to use for it from now on."""
        stop = start + PREFILL_CELL
        cell = self.store.keep(self._path, cell, lambda: self.backend.take(start, stop))
        self._path.append(cell)
        return cell

    def _cut(self, cells: int) -> None:
        length = cells * PREFILL_CELL
        if self.backend.rewind(length) != length:
            cells = self.backend.rewind(0)
        self._path = self._path[:cells]

    def _restore(self, kept: list[Cell]) -> None:
        try:
            self.backend.restore([cell.saved for cell in kept[len(self._path) :]])
        except BaseException as error:
            self._forget(error)
            raise
        self._path = kept

    def _forget(self, error: BaseException) -> None:
        """Empty the cache: some layers may have the new positions and others not. What was kept is whole."""
        self._path, self._current = [], None
        self.backend.rewind(0)
        if isinstance(error, torch.OutOfMemoryError):
            self.store.clear()


class Run:
    """One prompt and what is generated after it."""

    def __init__(self, prefill: Prefill, ids: Sequence[int], reused: Sequence[Cell]) -> None:
        self._prefill = prefill
        self._ids = ids
        self._reused = tuple(reused)
        self.last: Forward | None = None
        """The pass of the prompt's last token; None while it has not run."""

    @property
    def reused_tokens(self) -> int:
        """Tokens of the prompt that did not run again."""
        return len(self._reused) * PREFILL_CELL

    def cells(self, should_stop: Callable[[], bool]) -> Iterator[Cell]:
        """The prompt's cells in order, the last one perhaps shorter. `should_stop` is asked before each that runs."""
        yield from self._reused
        for start in range(self.reused_tokens, len(self._ids), PREFILL_CELL):
            if should_stop():
                return
            ids = self._ids[start : start + PREFILL_CELL]
            forward = self.forward(ids)
            cell = Cell(ids, forward.residual)
            if len(ids) == PREFILL_CELL:
                cell = self._prefill.keep(start, cell)
            if start + len(ids) == len(self._ids):
                self.last = forward
            yield cell

    def forward(self, ids: Sequence[int]) -> Forward:
        """Append `ids` to the prompt. Raises ModelError when another prompt has run since."""
        return self._prefill.forward(self, ids)
