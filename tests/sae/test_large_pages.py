"""Large pages are a wish: a tensor is the same with and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from neuroscope.sae import large_pages


@pytest.mark.parametrize("shape", [(0, 3), (5, 7), (1024, 2048), (3000, 2048)])
def test_a_tensor_in_large_pages_is_any_tensor(shape: tuple[int, int]) -> None:
    tensor = large_pages.empty(shape, torch.int8).fill_(3)
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (shape, torch.int8, True)
    assert int(tensor.sum(dtype=torch.int64)) == 3 * tensor.numel()


def test_the_system_is_asked_for_them() -> None:
    """`hg` in the flags of the memory's mapping: what madvise set. Whether pages are there is the kernel's matter."""
    tensor = large_pages.empty((4096, 4096), torch.int8)
    inside = tensor.data_ptr() + tensor.nbytes // 2
    flags = ""
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        start, stop = (int(side, 16) for side in mapping.split(maxsplit=1)[0].split("-"))
        if start <= inside < stop:
            flags = mapping.partition("VmFlags:")[2]
    assert ("hg" in flags.split()) is Path("/sys/kernel/mm/transparent_hugepage").exists()
