"""Memory in pages of 2 MB, for what is read once a token from end to end.

Between two tokens the model's own weights push the addresses of 4 kB pages out of the processor. Finding those of 34 MB
again takes some half a millisecond, where reading takes two and a half.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

PAGE = 2 << 20
_MADV_HUGEPAGE = 14


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A CPU tensor that nothing was written to, for which Linux is asked for large pages; elsewhere as any other."""
    tensor = torch.empty(tuple(shape), dtype=dtype)
    start = -(-tensor.data_ptr() // PAGE) * PAGE
    stop = (tensor.data_ptr() + tensor.nbytes) // PAGE * PAGE
    if sys.platform == "linux" and start < stop:
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        advise(start, stop - start, _MADV_HUGEPAGE)  # a kernel without them says no, and nothing changes
    return tensor
