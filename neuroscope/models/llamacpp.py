"""A GGUF file as a `Backend`, by llama.cpp: cached passes over quantised weights with the residual of one layer.

Prompts run in cells of at most CELL positions, each one graph, so that a cell gives the same numbers wherever it
runs. Chat, text and sampling are elsewhere, and so is which file it is.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.models.backend import Forward
from neuroscope.models.llamacpp_context import CELL, CONTEXT, new_context
from neuroscope.models.llamacpp_library import llama, said
from neuroscope.models.llamacpp_model import OpenModel, open_model
from neuroscope.models.llamacpp_tap import Tap

OWN, COPIED = 0, 1
"""Sequences of the cache: what runs, and the positions that are being copied out or in."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedCells:
    """Keys and values of some positions, in llama.cpp's own form."""

    data: NDArray[np.uint8]
    positions: int

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


class LlamaCppBackend:
    """One sequence at a time through the model at `path`, the output of decoder layer `layer` taken.

    `device` is that of the residuals, and of the model as far as llama.cpp was built for it. The memory goes with
    the last reference, or at `close`.
    """

    def __init__(
        self,
        path: Path,
        layer: int,
        *,
        device: torch.device | None = None,
        threads: int | None = None,
        compiled: bool = True,
    ) -> None:
        self.path = path
        self.layer = layer
        self.device = device or torch.device("cpu")
        self._model: OpenModel = open_model(path, gpu=self.device.type != "cpu")
        model = self._model
        if not 0 <= layer < model.layers:
            model.close()
            raise ModelError(f"Layer {layer} was asked for; this model has layers 0 to {model.layers - 1}.")
        self.d_model: int = model.width
        self._threads = threads or torch.get_num_threads()
        self._busy = threading.Lock()
        self._length = 0
        self._soiled = False
        """The cache holds values that are not finite, which zeros must replace."""
        self._logits_at = 0
        self._logits_there: NDArray[np.float32] = np.empty(0, np.float32)
        self._one: Any = (llama().llama_token * 1)()
        self._batch_of_one: Any = llama().llama_batch_get_one(self._one, 1)
        self._tap = Tap(layer, CELL, self.d_model, in_c=compiled)
        self._context = self._open_context(min(model.context_length, CONTEXT), self._tap)
        self._free = weakref.finalize(self, _free, self._context, model)
        self._free.atexit = False  # a pass may still run then
        self.context_length: int = min(llama().llama_n_ctx(self._context), model.context_length)
        self._probe()

    @property
    def vocabulary(self) -> int:
        """Rows of the logits."""
        return self._model.vocabulary

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer by the file: its EOS, and those it marks as ends of a turn."""
        return self._model.end_ids

    def close(self) -> None:
        """Give the memory back; waits for a pass that runs. Nothing can be run afterwards."""
        with self._busy:
            self._free()

    def forward(self, ids: Sequence[int]) -> Forward:
        """Append `ids` to the cache and run them.

        Raises ModelError when they do not fit the context, or llama.cpp fails.
        """
        if not ids or self._length + len(ids) > self.context_length:
            raise ModelError(
                f"{len(ids)} tokens after {self._length} cannot run: the context is {self.context_length}."
            )
        with self._busy:
            self._must_be_open()
            rows = [self._run(ids[at : at + CELL]) for at in range(0, len(ids), CELL)]
            logits = self._logits(self._context, -1)
        self._soiled = self._soiled or not math.isfinite(logits[0])
        residual = torch.from_numpy(rows[0] if len(rows) == 1 else np.concatenate(rows))
        if self.device.type != "cpu":
            residual = residual.to(self.device)
        return Forward(torch.from_numpy(logits), residual, logits)

    @property
    def decoding(self) -> str:
        return "llama.cpp"

    def prompt_logits(self, ids: Sequence[int]) -> Iterator[Tensor]:
        """Logits [some, vocab] float32 after each of `ids`, in a context of their own: the cache stays as it is."""
        with self._busy:
            self._must_be_open()
            context = self._open_context(max(len(ids), CELL))
        try:
            for start in range(0, len(ids), CELL):
                cell = ids[start : start + CELL]
                with self._busy:
                    self._must_be_open()
                    self._decode(context, cell, all_logits=True)
                    logits = np.stack([self._logits(context, row) for row in range(len(cell))])
                yield torch.from_numpy(logits)
        finally:
            with self._busy:
                if self._free.alive:
                    llama().llama_free(context)

    def rewind(self, length: int) -> int:
        """Keep at most `length` cached positions; all of them can be kept, or for recurrent models none."""
        length = max(0, min(length, self._length))
        with self._busy:
            self._must_be_open()
            memory = self._memory
            if length == 0 or self._soiled or not llama().llama_memory_seq_rm(memory, OWN, length, -1):
                llama().llama_memory_clear(memory, self._soiled)
                length, self._soiled = 0, False
            self._length = length
        return length

    def take(self, start: int, stop: int) -> SavedCells | None:
        """A copy of the cached positions `start` to `stop`; None for models that keep a state instead of positions.

        The cache knows sequences: the positions are made a second one, which is what can be copied.
        """
        if self._model.is_recurrent or not 0 <= start < stop <= self._length:
            return None
        library = llama()
        with self._busy:
            self._must_be_open()
            library.llama_memory_seq_cp(self._memory, OWN, COPIED, start, stop)
            try:
                data = np.empty(library.llama_state_seq_get_size(self._context, COPIED), np.uint8)
                pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
                written = library.llama_state_seq_get_data(self._context, pointer, data.nbytes, COPIED)
            except MemoryError:
                return None
            finally:
                library.llama_memory_seq_rm(self._memory, COPIED, -1, -1)
        return SavedCells(data, stop - start) if written == data.nbytes else None

    def restore(self, saved: Sequence[Any]) -> None:
        """Append positions that `take` gave."""
        library = llama()
        with self._busy:
            self._must_be_open()
            for part in saved:
                pointer = part.data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
                if not library.llama_state_seq_set_data(self._context, pointer, part.nbytes, COPIED):
                    raise ModelError(f"What was kept of an earlier prompt cannot be put back: {said()}.")
                library.llama_memory_seq_cp(self._memory, COPIED, OWN, -1, -1)
                library.llama_memory_seq_rm(self._memory, COPIED, -1, -1)
                self._length += part.positions

    def residuals(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The residual [batch, seq, d_model] of right-padded `ids` [batch, seq], `mask` True on real tokens.

        Row by row; the cache is empty afterwards. Rows at padding positions are zero.
        """
        found = torch.zeros(*ids.shape, self.d_model, device=self.device)
        for row, (row_ids, real) in enumerate(zip(ids, mask.bool(), strict=True)):
            self.rewind(0)
            found[row, : int(real.sum())] = self.forward(row_ids[real].tolist()).residual
        self.rewind(0)
        return found

    @property
    def _memory(self) -> Any:
        return llama().llama_get_memory(self._context)

    def _must_be_open(self) -> None:
        if not self._free.alive:
            raise ModelError("The model was closed.")

    def _run(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """The residual [len(ids), d_model] of one cell."""
        # After the last layer llama.cpp keeps only rows whose logits are wanted.
        self._decode(self._context, ids, all_logits=self.layer == self._model.layers - 1)
        self._length += len(ids)
        residual = self._tap.take(len(ids))
        if residual is None:
            raise ModelError(
                f"llama.cpp gives no output of layer {self.layer} for models of the architecture "
                f"{self._model.architecture} (no tensor l_out-{self.layer}). Use --backend torch."
            )
        return residual

    def _decode(self, context: Any, ids: Sequence[int], *, all_logits: bool) -> None:
        library = llama()
        if len(ids) == 1:  # which is asked for its logits in either case
            self._one[0] = ids[0]
            batch = self._batch_of_one
        else:
            tokens = (library.llama_token * len(ids))(*ids)
            batch = library.llama_batch_get_one(tokens, len(ids))
            if all_logits:
                batch.logits = (ctypes.c_int8 * len(ids))(*[1] * len(ids))
        status = library.llama_decode(context, batch)
        if status != 0:
            raise ModelError(f"llama.cpp could not run {len(ids)} tokens (status {status}): {said()}.")

    def _logits(self, context: Any, row: int) -> NDArray[np.float32]:
        """A copy [vocab] of the logits of one row of the last pass."""
        pointer = llama().llama_get_logits_ith(context, row)
        address = ctypes.addressof(pointer.contents)
        if (
            address != self._logits_at
        ):  # one place in each context: to make an array takes as long as to copy it
            self._logits_at = address
            self._logits_there = np.ctypeslib.as_array(pointer, (self.vocabulary,))
        return self._logits_there.copy()

    def _open_context(self, positions: int, tap: Tap | None = None) -> Any:
        context = new_context(self._model.pointer, positions, self._threads, tap)
        if not context:
            raise ModelError(
                f"llama.cpp cannot make room for {positions} positions of {self.path}: {said()}."
            )
        return context

    def _probe(self) -> None:
        """One token, so that what cannot be read is said when the model is loaded."""
        try:
            if not self.forward([0]).residual.isfinite().all():
                raise ModelError(
                    f"{self.path}: what llama.cpp computes from these weights is not finite. Fetch the model anew."
                )
            self.rewind(0)
        except ModelError:
            self.close()
            raise


def _free(context: Any, model: OpenModel) -> None:
    llama().llama_free(context)
    model.close()
