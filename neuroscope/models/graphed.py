"""The lean step as a CUDA graph: what it runs on the device for one token is recorded once, then replayed as a whole.

For a recording, all that changes from token to token must lie in the device's memory at addresses that stay. So the
token and its position are tensors, keys and values are written where the position says, and attention reads a fixed
width of the cache under a mask made of the position. How wide is settled by the position alone, never by what the cache
held before: a seed gives the same text whether the beginning of a prompt ran anew or was kept.

A recording knows the cache's buffers by their addresses. It is thrown away with its cache, and when a cache that grew
has others; so an emptied cache keeps its buffers while graphs are in use. Where recording or replaying fails, the lean
step goes on in its place, for good: nothing counts as appended before the replay is under way.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from neuroscope.models.lean import FAULTS, LeanStep, Look, Rows, attend
from neuroscope.models.lean_layers import LeanLayer

FIRST_WIDTH = 256
"""Positions that attention reads at first; twice as many each time they are full."""

KEPT = 2048
"""Positions of an emptied cache at most that is used again; a larger one is given back, and its graphs with it."""

WARM_UPS = 2
"""Runs before a recording: libraries allocate and choose their kernels at the first."""

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """What records work on a device."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What does `work` again, on the same memory. Recording may do the work too: it can be done over and over."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""


class CudaRecorder:
    """CUDA graphs whose passing results share one pool of memory: only one of them runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        self._living: WeakSet[_Recording] = WeakSet()
        self._left: Any = None

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        new_stream: Any = torch.cuda.Stream
        with torch.cuda.device(self._device):
            self._stream = self._stream or new_stream(self._device)
            self._stream.wait_stream(torch.cuda.current_stream())
            try:
                # around a capture's own: one that fails does not go back to the stream before it
                with torch.cuda.stream(self._stream):
                    recording = self._recorded(work)
            finally:
                torch.cuda.current_stream().wait_stream(self._stream)
        self._living.add(recording)
        return recording

    def _recorded(self, work: Callable[[], None]) -> _Recording:
        """Other threads may use the device meanwhile. Raises what went wrong first: to end a capture fails then too."""
        for _ in range(WARM_UPS):
            work()
        # a pool can be shared while one of its graphs lives
        pool = next((each.pool for each in self._living), None) or torch.cuda.graph_pool_handle()
        graph, first = torch.cuda.CUDAGraph(), None
        mode = "thread_local"
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode=mode):
                try:
                    work()
                except BaseException as error:
                    first = error
                    raise
        except BaseException as error:
            self._leave(graph, pool)
            raise (first or error) from None
        return _Recording(graph, pool)

    def _leave(self, graph: Any, pool: Any) -> None:
        """Take a failed capture out of the allocator, where it else is under way for as long as the process runs.

        torch leaves this undone where the end of a capture fails, and can then give no memory back.
        """
        self._left = graph  # allocators may still ask it whether they are meant
        with contextlib.suppress(AttributeError, TypeError, RuntimeError):
            number = torch.cuda.current_device()
            torch._C._cuda_endAllocateToPool(number, pool)  # fails where the capture did end
            torch._C._cuda_releasePool(number, pool)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)


@dataclass(frozen=True, eq=False)
class _Recording:
    graph: Any
    pool: Any

    def __call__(self) -> None:
        self.graph.replay()


def recorder_for(device: torch.device) -> Recorder | None:
    """What records on this device; None where nothing does."""
    return CudaRecorder(device) if device.type == "cuda" and torch.version.hip is None else None


@dataclass(slots=True)
class _Graphs:
    """The recordings that read one set of buffers, by width."""

    buffers: tuple[tuple[int, int, int], ...] = ()
    """Addresses of keys and values and how many positions there are, for each layer."""
    by_width: dict[int, Callable[[], None]] = field(default_factory=dict)


class GraphStep:
    """As `LeanStep`, by recordings of what it does."""

    def __init__(self, lean: LeanStep, context_length: int, recorder: Recorder) -> None:
        self._lean = lean
        self._context_length = context_length
        self._recorder = recorder
        device = lean.weights.device
        self._token = torch.zeros(1, dtype=torch.long, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._found: tuple[Tensor, Tensor] | None = None
        """Logits and residual of the last replay, apart from the memory that recordings share."""
        self._fixed: dict[int, tuple[Tensor, Rows]] = {}
        """For each width, the numbers of its positions and their rotary embedding."""
        self._graphs: WeakKeyDictionary[Cache, _Graphs] = WeakKeyDictionary()
        self._failed = False

    @property
    def way(self) -> str:
        """In a word or two."""
        return self._lean.way if self._failed else "CUDA graph"

    def keeps(self, cache: Cache) -> bool:
        """Whether `cache` is to be used again with its memory, once it is emptied; one long text shall not hold it."""
        return not self._failed and all(
            not kept.is_initialized or kept.keys.shape[-2] <= KEPT for kept in cache.layers
        )

    def fits(self, cache: Cache) -> bool:
        return self._lean.fits(cache)

    def run(self, token: int, position: int, cache: Cache) -> tuple[Tensor, Tensor]:
        """Append `token` to `cache`: logits [vocab] float32 and the residual [1, d_model] at the hooked layer.

        The first position of all is always run by the lean step: it may be what makes the buffers.
        """
        if position > 0 and not self._failed:
            try:
                return self.replay(token, position, cache)
            except FAULTS as error:
                self._failed = True
                self._graphs.clear()
                self._fixed.clear()
                log.warning("decoding: CUDA graphs fail, the lean step goes on: %s", error)
        return self._lean.run(token, position, cache)

    def replay(self, token: int, position: int, cache: Cache) -> tuple[Tensor, Tensor]:
        """As `run` behind the first position, and where a recording fails, its error; `cache` is then as it was."""
        width = width_at(position, self._context_length)
        for kept in cache.layers:
            kept.reserve(width)
        self._token.fill_(token)
        self._position.fill_(position)
        self._recorded(cache, width)()
        assert self._found is not None
        logits, residual = (each.clone() for each in self._found)
        for kept in cache.layers:
            kept.filled_to(position + 1)
        return logits, residual

    def _recorded(self, cache: Cache, width: int) -> Callable[[], None]:
        buffers = tuple(
            (kept.keys.data_ptr(), kept.values.data_ptr(), kept.keys.shape[-2]) for kept in cache.layers
        )
        graphs = self._graphs.get(cache)
        if graphs is None or graphs.buffers != buffers:
            graphs = self._graphs[cache] = _Graphs(buffers)
        if width not in graphs.by_width:
            graphs.by_width[width] = self._record(cache, width)
        return graphs.by_width[width]

    def _record(self, cache: Cache, width: int) -> Callable[[], None]:
        """All that must not be part of a recording is done here, before it."""
        if width not in self._fixed:
            numbers = torch.arange(width, device=self._position.device)
            self._fixed[width] = numbers, self._lean.tables(width)
        numbers, tables = self._fixed[width]
        kept = [(layer.keys[:, :, :width], layer.values[:, :, :width]) for layer in cache.layers]
        found = self._found
        if found is None:
            found = self._found = self._work(kept, numbers, tables)

        def work() -> None:
            for to, new in zip(found, self._work(kept, numbers, tables), strict=True):
                to.copy_(new)

        return self._recorder.record(work)

    def _work(
        self, kept: list[tuple[Tensor, Tensor]], numbers: Tensor, tables: Rows
    ) -> tuple[Tensor, Tensor]:
        """What is recorded: nothing here may depend on a number that the host knows."""
        return self._lean.run_static(self._token, self._position, tables, self._looks(kept, numbers))

    def _looks(self, kept: list[tuple[Tensor, Tensor]], numbers: Tensor) -> Iterator[Look]:
        """For each layer, how it writes its keys and values and attends to those in its sight."""
        masks: dict[int | None, Tensor] = {}
        for layer, (keys, values) in zip(self._lean.layers, kept, strict=True):
            if layer.window not in masks:
                masks[layer.window] = self._mask(numbers, layer.window, keys.dtype)
            yield partial(_look, keys, values, self._position, masks[layer.window])

    def _mask(self, numbers: Tensor, window: int | None, dtype: torch.dtype) -> Tensor:
        """[1, 1, 1, width]: zero for the positions up to this one, and not before its window; else minus infinity."""
        hidden = numbers > self._position
        if window is not None:
            hidden |= numbers <= self._position - window
        mask = torch.zeros_like(numbers, dtype=dtype)
        return mask.masked_fill_(hidden, float("-inf"))[None, None, None]


def _look(
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    mask: Tensor,
    layer: LeanLayer,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> Tensor:
    keys.index_copy_(2, position, k[None, :, None])
    values.index_copy_(2, position, v[None, :, None])
    return attend(layer, q, keys, values, mask)


def width_at(position: int, context_length: int) -> int:
    """How many positions are read at this one."""
    width = FIRST_WIDTH
    while width <= position:
        width *= 2
    return min(width, context_length)
