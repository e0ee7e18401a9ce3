"""Large pages are a wish: memory is the same with and without."""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

import pytest
import torch

from neuroscope import large_pages
from neuroscope.memory import Memory

MB = 1 << 20
AN_ANSWER = {"always": True, "madvise": True, "never": False}


def is_asked_for(address: int) -> bool:
    """`hg` in the flags of the memory's mapping: what madvise set. Whether pages are there is the kernel's matter."""
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        start, stop = (int(side, 16) for side in mapping.split(maxsplit=1)[0].split("-"))
        if start <= address < stop:
            return "hg" in mapping.partition("VmFlags:")[2].split()
    raise AssertionError(f"{address:x} is not mapped")


def private(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.mark.parametrize("shape", [(0, 3), (5, 7), (1024, 2048), (3000, 2048)])
def test_a_tensor_in_large_pages_is_any_tensor(shape: tuple[int, int]) -> None:
    tensor = large_pages.empty(shape, torch.int8).fill_(3)
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (shape, torch.int8, True)
    assert int(tensor.sum(dtype=torch.int64)) == 3 * tensor.numel()


def test_the_system_is_asked_for_them() -> None:
    tensor = large_pages.empty((4096, 4096), torch.int8)
    has_them = Path("/sys/kernel/mm/transparent_hugepage").exists()
    assert is_asked_for(tensor.data_ptr() + tensor.nbytes // 2) is has_them


@pytest.mark.parametrize("answer", AN_ANSWER)
def test_whether_they_are_offered_is_the_systems_switch(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "enabled"
    switch.write_text(" ".join(f"[{word}]" if word == answer else word for word in AN_ANSWER) + "\n")
    monkeypatch.setattr(large_pages, "_SWITCH", switch)
    assert large_pages.offered() is AN_ANSWER[answer]
    switch.unlink()
    assert not large_pages.offered()


@pytest.mark.parametrize(("free", "room"), [(200, True), (199, False), (None, False)])
def test_there_is_room_where_twice_as_much_is_free(
    free: int | None, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_pages, "memory", lambda: Memory(free, 1000))
    monkeypatch.setattr(large_pages, "offered", lambda: True)
    assert large_pages.room_for(100) is room
    monkeypatch.setattr(large_pages, "offered", lambda: False)
    assert not large_pages.room_for(100)


def test_memory_that_comes_is_asked_for_and_what_was_there_is_not() -> None:
    there = private(16 * MB)
    ask = large_pages.for_what_comes()
    came = private(32 * MB)
    assert ask() >= 30 * MB
    assert is_asked_for(address_of(came) + 16 * MB) is Path("/sys/kernel/mm/transparent_hugepage").exists()
    assert not is_asked_for(address_of(there) + 8 * MB)
    came[:3] = b"all"
    assert came[:4] == b"all\0"


def test_where_memory_is_not_told_nothing_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_pages, "_MAPS", tmp_path / "none")
    ask = large_pages.for_what_comes()
    came = private(32 * MB)
    assert (ask(), is_asked_for(address_of(came) + 16 * MB)) == (0, False)


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], [(10, 20)]),
        ([(0, 10), (20, 30)], [(10, 20)]),
        ([(12, 14)], [(10, 12), (14, 20)]),
        ([(0, 12), (15, 30)], [(12, 15)]),
        ([(11, 12), (12, 13), (19, 20)], [(10, 11), (13, 19)]),
        ([(0, 30)], []),
        ([(10, 20)], []),
    ],
)
def test_new_is_what_of_a_stretch_is_in_none_of_the_old(
    others: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    """Neighbouring mappings are told as one: a new one may have grown from an old one, on either side."""
    assert list(large_pages._without((10, 20), others)) == left
