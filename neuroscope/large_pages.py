"""Memory in pages of 2 MB, for what is read once a token from end to end.

Between two tokens the model's own weights push the addresses of 4 kB pages out of the processor. Finding those of 34 MB
again takes some half a millisecond, where reading takes two and a half.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from neuroscope.memory import memory

PAGE = 2 << 20
ROOM = 2
"""Times what is moved into them that must be free: what is mapped from a file the system can drop, this it cannot."""
_MADV_HUGEPAGE = 14
_MAPS = Path("/proc/self/maps")
_SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def offered() -> bool:
    """Whether this system gives large pages to who asks for them."""
    with suppress(OSError):
        return sys.platform == "linux" and "[never]" not in _SWITCH.read_text(encoding="ascii")
    return False


def room_for(size: int) -> bool:
    """Whether weights of `size` bytes, which the system could else map from a file, shall lie in large pages."""
    free = memory().available
    return offered() and free is not None and free >= ROOM * size


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A CPU tensor that nothing was written to, for which Linux is asked for large pages; elsewhere as any other."""
    tensor = torch.empty(tuple(shape), dtype=dtype)
    _ask(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes)
    return tensor


def for_what_comes() -> Callable[[], int]:
    """Asks for large pages in the memory that a library takes for itself.

    Call what this gives when the memory is taken and not yet written: then its pages come as large ones, and twice as
    fast. It gives the bytes that were asked for, of all that the process took meanwhile; 0 where there are none.
    """
    before = list(_own_memory())

    def ask() -> int:
        return sum(_ask(start, stop) for here in _own_memory() for start, stop in _without(here, before))

    return ask


def _own_memory() -> Iterator[tuple[int, int]]:
    """Addresses of the process's private memory without a file or a name, ascending; none where that is not told."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        addresses, rights, _offset, _device, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and not name:
            start, stop = (int(address, 16) for address in addresses.split("-"))
            yield start, stop


def _without(here: tuple[int, int], others: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of `here` is in none of `others`, which ascend: neighbours are told as one."""
    start, stop = here
    for other_start, other_stop in others:
        if other_start < stop and start < other_stop:
            if start < other_start:
                yield start, other_start
            start = other_stop
    if start < stop:
        yield start, stop


def _ask(start: int, stop: int) -> int:
    """For the whole pages from `start` to `stop`; how many bytes they are."""
    start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
    if start >= stop or sys.platform != "linux":
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    advise(start, stop - start, _MADV_HUGEPAGE)  # a kernel without them says no, and nothing changes
    return stop - start
