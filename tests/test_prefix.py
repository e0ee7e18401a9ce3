"""The store of prefix cells: exact, bounded in bytes, and never with a cell that cannot be found."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Sequence

import pytest
import torch

from neuroscope.prefix import Cell, PrefixStore
from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.reading import FeatureReader

D_MODEL = 4
KV = 1000
SIZE = KV + 8 + 2 * D_MODEL * 4  # keys and values, two ids, the residual of two positions


class Block:
    """A copy of KV bytes."""

    nbytes = KV


def cell(ids: Sequence[int]) -> Cell:
    return Cell(ids, torch.zeros(len(ids), D_MODEL))


def keep(store: PrefixStore, *prompt: Sequence[int]) -> list[Cell]:
    """Run the cells of a prompt that are not kept, and keep them; the whole path."""
    path = store.find(prompt)
    for ids in prompt[len(path) :]:
        path.append(store.keep(path, cell(ids), Block))
    return path


A, B, C, D = [1, 2], [3, 4], [5, 6], [7, 8]


def test_a_beginning_is_found_by_all_its_ids() -> None:
    store = PrefixStore(10 * SIZE)
    path = keep(store, A, B, C)
    assert store.find([A, B, C]) == path
    assert store.find([A, B, D]) == path[:2]
    assert store.find([A, C]) == path[:1]
    assert store.find([B, C]) == [], "the same ids after others are another cell"
    assert store.find([[1, 2, 3]]) == []


def test_ids_whose_hashes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Colliding(bytes):
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return bytes.__eq__(self, other)

    monkeypatch.setattr("neuroscope.prefix.key", lambda ids: Colliding(bytes(ids)))
    store = PrefixStore(10 * SIZE)
    keep(store, A)
    (other,) = keep(store, B)
    assert hash(other.ids) == 1
    assert store.find([B]) == [other]
    assert store.find([C]) == []


def test_what_is_kept_is_counted_in_bytes_and_stays_below_the_capacity() -> None:
    store = PrefixStore(3 * SIZE + 5)
    for number in range(20):
        keep(store, A, [100 + number, 0])
        assert store.used == len(store) * SIZE <= store.capacity
    assert len(store) == 3


def test_what_was_not_used_for_longest_goes_first() -> None:
    store = PrefixStore(3 * SIZE)
    for ids in (A, B, C):
        keep(store, ids)
    store.find([A])
    keep(store, D)
    assert [bool(store.find([ids])) for ids in (A, B, C, D)] == [True, False, True, True]


def test_the_end_of_a_conversation_goes_before_its_beginning() -> None:
    store = PrefixStore(4 * SIZE)
    keep(store, A, B, C)
    keep(store, D, [9, 9])
    assert len(store.find([A, B, C])) == 2
    assert len(store.find([D, [9, 9]])) == 2


def test_a_prompt_longer_than_the_store_keeps_its_beginning() -> None:
    store = PrefixStore(3 * SIZE)
    keep(store, D)
    prompt = [[n, n] for n in range(6)]
    path = keep(store, *prompt)
    assert store.find(prompt) == path[:3]
    assert [c.saved is not None for c in path] == [True] * 3 + [False] * 3
    assert store.find([D]) == []


def test_no_order_of_uses_leaves_a_cell_that_cannot_be_found() -> None:
    """Oracle: the bytes of all that can be reached from the first cells."""
    pick = random.Random(0)
    store = PrefixStore(9 * SIZE)
    seen = set()
    for _ in range(500):
        keep(store, *[[pick.randrange(3)] * 2 for _ in range(pick.randrange(1, 6))])
        reachable = list(store._first.values())
        for found in reachable:
            reachable += found.children.values()
        assert set(reachable) == set(store._kept)
        assert store.used == len(reachable) * SIZE <= store.capacity
        assert all(found.saved is not None for found in reachable)
        seen.add(len(reachable))
    assert max(seen) == 9


def test_what_is_dropped_is_freed_at_once() -> None:
    store = PrefixStore(2 * SIZE)
    path = keep(store, A, B)
    gone = weakref.ref(path[1])
    del path
    gc.disable()  # no circle is left for a collection to find
    try:
        keep(store, A, C)
        assert gone() is None
    finally:
        gc.enable()


def test_a_dropped_cell_still_in_use_holds_no_copy_of_the_cache() -> None:
    store = PrefixStore(SIZE)
    (held,) = keep(store, A)
    keep(store, B)
    assert held.saved is None


def test_what_cannot_be_copied_is_not_kept() -> None:
    store = PrefixStore(10 * SIZE)
    first = store.keep([], cell(A), lambda: None)
    assert (len(store), store.used, first.saved) == (0, 0, None)
    asked: list[int] = []
    store.keep([first], cell(B), lambda: asked.append(1))
    assert not asked, "nothing is copied below a cell that is not kept"


def test_a_capacity_of_nothing_copies_nothing() -> None:
    store = PrefixStore(0)
    store.keep([], cell(A), lambda: pytest.fail("copied"))
    assert len(store) == 0


def test_features_are_encoded_when_asked_for_once_and_counted(tiny_sae: SparseAutoencoder) -> None:
    residual = torch.randn(2, tiny_sae.d_in, generator=torch.Generator().manual_seed(0)) * 5
    reader = FeatureReader(tiny_sae)
    store = PrefixStore(10**6)
    kept = store.keep([], Cell(A, residual), Block)
    assert store.used == KV + 8 + residual.nbytes
    readings = kept.read(reader)
    store.recount(kept)
    assert kept.read(reader) is readings
    assert [acts.values.tolist() for acts, _ in readings] == [
        acts.values.tolist() for acts, _ in reader.read(residual)
    ]
    firings = sum(acts.l0 for acts, _ in readings)
    assert firings > 0
    assert store.used == KV + 8 + 8 * firings + 2 * 350


def test_features_that_take_more_room_than_there_is_make_room(tiny_sae: SparseAutoencoder) -> None:
    store = PrefixStore(2 * SIZE)
    first, second = keep(store, A)[0], keep(store, B)[0]
    second._residual = torch.ones(2, tiny_sae.d_in)
    second.read(FeatureReader(tiny_sae))
    store.recount(second)
    assert store.used <= store.capacity
    assert first.saved is None


def test_clearing_drops_everything() -> None:
    store = PrefixStore(10 * SIZE)
    path = keep(store, A, B, C)
    store.clear()
    assert (len(store), store.used) == (0, 0)
    assert store.find([A]) == []
    assert all(c.saved is None for c in path)
