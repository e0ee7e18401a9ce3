"""Stand-ins for what records work on a device, on the CPU.

`Tape` is to a processor what a CUDA graph is to a device: it keeps the operations with the very tensors they read and
wrote, and plays them again into the same memory. No Python runs in between, so that a number that was the host's when
it was recorded is the same at every playing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FROM_OR_TO_HOST = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",
        "item",
        "is_nonzero",
        "equal",
        "nonzero",
        "masked_select",
        "lift",
        "lift_fresh",
        "lift_fresh_copy",
        "detach_",  # what `torch.tensor` ends in
        "_pin_memory",
    )
)
"""Operations that wait for a device to say a number, or bring numbers that the host just wrote down."""


@dataclass(frozen=True)
class Operation:
    call: Callable[[], Any]
    name: str
    found: list[Tensor]
    """Memory of its own that it wrote; empty where it made a view or changed what it was given."""
    onednn: bool
    """Whether PyTorch could leave it to oneDNN, as a recording of kernels knows once and for all."""

    def play(self) -> None:
        backend: Any = torch.backends.mkldnn
        before, backend.enabled = backend.enabled, self.onednn
        found = tensors(self.call())
        backend.enabled = before
        for memory, new in zip(self.found, found, strict=bool(self.found)):
            memory.copy_(new)


class _Listener(TorchDispatchMode):
    """Notes each operation that is not made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        found = func(*args, **kwargs)
        given = {tensor.untyped_storage().data_ptr() for tensor in tensors((args, kwargs))}
        fresh = [tensor for tensor in tensors(found) if tensor.untyped_storage().data_ptr() not in given]
        changes = func._schema.is_mutable
        assert not (changes and fresh), func
        if changes or fresh or not tensors(found):  # else a view, which stays one
            onednn = torch.backends.mkldnn.enabled
            call: Callable[[], Any] = lambda: func(*args, **kwargs)  # noqa: E731
            self.operations.append(Operation(call, func._schema.name, fresh, onednn))
        return found


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class Recording:
    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.played = 0

    def __call__(self) -> None:
        self.played += 1
        for operation in self.operations:
            operation.play()

    def spoil(self) -> None:
        """What a replay does not write anew is seen to be missing."""
        for operation in self.operations:
            for memory in operation.found:
                memory.fill_(float("nan") if memory.is_floating_point() else 1)

    @property
    def names(self) -> set[str]:
        return {operation.name for operation in self.operations}


@dataclass
class Tape:
    """Records and plays; raises `fault` instead of the recording number `fails_at`, the work half done."""

    fails_at: int | None = None
    fault: BaseException = field(default_factory=lambda: RuntimeError("operation not permitted"))
    recordings: list[Recording] = field(default_factory=list)
    tried: int = 0

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.tried += 1
        with _Listener() as listener:
            work()
        if self.tried - 1 == self.fails_at:
            raise self.fault
        recording = Recording(listener.operations)
        recording.spoil()
        self.recordings.append(recording)
        return recording

    def synchronize(self) -> None:
        pass

    def __call__(self, _device: torch.device) -> Tape:
        return self


class Eager(Tape):
    """Does the work anew each time."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.tried += 1
        return work
