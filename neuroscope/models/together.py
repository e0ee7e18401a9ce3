"""Matrices moved into one, so that both it and they can be used and memory is taken once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def together(parts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The rows of all `parts` as one matrix, and the parts as views of it, to be used in their place.

    Parts that lie one after the other already are not copied, so that doing this twice takes nothing.
    Neither is made for inference only, wherever this is called: the parts belong to modules.
    """
    rows = [len(part) for part in parts]
    with torch.inference_mode(False), torch.no_grad():
        if _follow(parts):
            whole = parts[0].as_strided((sum(rows), *parts[0].shape[1:]), parts[0].stride())
        else:
            whole = torch.cat(list(parts))
        return whole, list(torch.split(whole, rows))


def _follow(parts: Sequence[Tensor]) -> bool:
    """Whether each begins where the one before ends, in the same memory."""
    memory, end = parts[0].untyped_storage().data_ptr(), parts[0].storage_offset()
    for part in parts:
        here = part.untyped_storage().data_ptr(), part.storage_offset()
        if here != (memory, end) or not part.is_contiguous():
            return False
        end += part.numel()
    return True
