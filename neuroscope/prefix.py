"""Cells of prompts that have run, kept so that a prompt which begins alike need not run them again.

A tree: a cell is found by its own ids below the cells before it, compared id by id, so that no prompt ever meets
what belongs to another. How cells are run, and when one may be used again, is said in `prefill.py`.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from neuroscope.models.backend import Saved
from neuroscope.sae.autoencoder import Reading
from neuroscope.sae.reading import FeatureReader

OBJECTS = 350
"""Bytes of the Python objects around one position's features."""


class Cell:
    """One forward pass of a prompt: its ids, and what can be read at their positions."""

    def __init__(self, ids: Sequence[int], residual: Tensor) -> None:
        self.ids = key(ids)
        self.parent: Cell | None = None
        self.children: dict[bytes, Cell] = {}
        self.saved: Saved | None = None
        """What the model's cache held at these positions, while the cell is in the store."""
        self._residual: Tensor | None = residual  # [len(ids), d_model]
        self._readings: list[Reading] | None = None

    def read(self, reader: FeatureReader) -> list[Reading]:
        """The features of each position. They are encoded when first asked for, and take the residual's place."""
        if self._readings is None:
            assert self._residual is not None
            self._readings, self._residual = reader.read(self._residual), None
        return self._readings

    @property
    def nbytes(self) -> int:
        """Memory of the cell, as long as it is in the store."""
        held = len(self.ids) + (0 if self.saved is None else self.saved.nbytes)
        held += 0 if self._residual is None else self._residual.nbytes
        for acts, _ in self._readings or ():
            held += acts.indices.nbytes + acts.values.nbytes + OBJECTS
        return held


def key(ids: Sequence[int]) -> bytes:
    """The ids themselves, in few bytes."""
    return array("i", ids).tobytes()


class PrefixStore:
    """Cells of at most `capacity` bytes; those unused for longest make room, the end of a prompt before its beginning.

    A capacity of 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        """Bytes of the cells kept."""
        self._first: dict[bytes, Cell] = {}
        self._kept: OrderedDict[Cell, int] = OrderedDict()
        """Bytes of each cell, longest unused first. A use moves a cell's ancestors behind it: the first has no child.

        So what is dropped first never has others below it that could no longer be found.
        """

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, cells: Iterable[Sequence[int]]) -> list[Cell]:
        """The longest beginning of `cells` (the ids of each) that is kept."""
        found: list[Cell] = []
        below = self._first
        for ids in cells:
            if (cell := below.get(key(ids))) is None:
                break
            found.append(cell)
            below = cell.children
        self._touch(found)
        return found

    def keep(self, before: Sequence[Cell], cell: Cell, save: Callable[[], Saved | None]) -> Cell:
        """Keep `cell`, which follows the cells `before`, with what `save` gives; the cell of these ids that is kept.

        It comes back unkept when the one before it is not kept, when it cannot be saved, or when `before` fills
        the store.
        """
        parent = before[-1] if before else None
        if self.capacity == 0 or not (parent is None or parent in self._kept):
            return cell
        siblings = self._siblings(parent)
        if (known := siblings.get(cell.ids)) is not None:
            return known
        cell.saved = save()
        self._touch(before)
        if cell.saved is None or not self._make_room(cell.nbytes, parent):
            cell.saved = None
            return cell
        cell.parent = parent
        siblings[cell.ids] = cell
        self._kept[cell] = cell.nbytes
        self.used += cell.nbytes
        self._touch(before)
        return cell

    def recount(self, cell: Cell) -> None:
        """Note that the size of `cell` has changed: its features were read."""
        if cell in self._kept:
            self.used += cell.nbytes - self._kept[cell]
            self._kept[cell] = cell.nbytes
            self._make_room(0, None)

    def clear(self) -> None:
        while self._kept:
            self._drop_oldest()

    def _make_room(self, size: int, parent: Cell | None) -> bool:
        """Whether `size` bytes fit without dropping `parent`."""
        if size > self.capacity:
            return False
        while self.used + size > self.capacity:
            if next(iter(self._kept)) is parent:
                return False
            self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        cell, size = self._kept.popitem(last=False)
        del self._siblings(cell.parent)[cell.ids]
        self.used -= size
        cell.saved = cell.parent = None

    def _siblings(self, parent: Cell | None) -> dict[bytes, Cell]:
        return self._first if parent is None else parent.children

    def _touch(self, path: Sequence[Cell]) -> None:
        for cell in reversed(path):
            if cell in self._kept:
                self._kept.move_to_end(cell)
