"""A transformers model as a `Backend`: cached forward passes with the residual of one layer.

Everything about chat, text and sampling is elsewhere; where the residual is taken is `hooks`' business.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.models.backend import Forward
from neuroscope.models.cache import SavedPositions, append, copy_out, make_cache, truncate
from neuroscope.models.context import context_length
from neuroscope.models.decode import Choice, choose
from neuroscope.models.graphed import Recorder, recorder_for
from neuroscope.models.hooks import residual_after, residual_at
from neuroscope.models.lean_batch import LeanPass, choose_pass

LOGITS_CELL = 64
"""Positions whose logits are in memory together."""


class TorchBackend:
    """One sequence at a time through `model`, hooked at the output of decoder layer `layer`.

    The hook is registered for the duration of a forward pass and taken away again.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        layer: int,
        *,
        decode: str = "auto",
        recorder: Callable[[torch.device], Recorder | None] = recorder_for,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.layer: int = layer
        self.context_length: int = context_length(model.config)
        self.d_model: int = model.config.get_text_config(decoder=True).hidden_size
        parameters = inspect.signature(model.forward).parameters
        self._cache_argument = (
            "cache" if "cache" in parameters else "past_key_values"
        )  # before transformers 5.2x
        self._keeps_logits = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._cache = make_cache(model.config)
        self._length = 0
        self._decode_mode = decode
        self._recorder = recorder
        self._decode: Choice | None = None
        self._lean_pass: list[LeanPass | None] = []
        with residual_at(model, layer):  # refuses a layer that is not there
            pass

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer by the model's generation config: more than the tokenizer's EOS in some."""
        ends = self.model.generation_config.eos_token_id
        return frozenset([ends] if isinstance(ends, int) else ends or ())

    @torch.inference_mode()
    def forward(self, ids: Sequence[int]) -> Forward:
        """Append `ids` to the cache and run them.

        Raises ModelError when they do not fit the context.
        """
        if not ids or self._length + len(ids) > self.context_length:
            raise ModelError(
                f"{len(ids)} tokens after {self._length} cannot run: the context is {self.context_length}."
            )
        if len(ids) == 1 and (step := self.decode.step) is not None and step.fits(self._cache):
            logits, residual = step.run(ids[0], self._length, self._cache)
        else:
            logits, residual = self._forward(list(ids), self._cache)
        self._length += len(ids)
        return Forward(logits=logits, residual=residual)

    def _forward(self, ids: list[int], cache: Any) -> tuple[Tensor, Tensor]:
        """The model's own pass over `ids`, appended to `cache`: logits after the last, and their residuals."""
        input_ids = torch.tensor([ids], device=self.device)
        with residual_at(self.model, self.layer) as tap:
            output = self.model(
                input_ids=input_ids, use_cache=True, **{self._cache_argument: cache}, **self._keeps_logits
            )
        return output.logits[0, -1].float(), tap.take()[0]

    @property
    @torch.inference_mode()
    def decode(self) -> Choice:
        """How single tokens run; settled the first time it is asked for, by running a few."""
        if self._decode is None:
            self._decode = choose(
                self._decode_mode,
                self.model,
                self.layer,
                self.context_length,
                lambda: make_cache(self.model.config),
                self._forward,
                self._recorder(self.device),
            )
        return self._decode

    @property
    def lean_pass(self) -> LeanPass | None:
        """What runs windows instead of the model's own pass; settled the first time it is asked for."""
        if not self._lean_pass:
            asked = self._decode_mode != "model"
            chosen = choose_pass(self.model, self.layer, self.context_length) if asked else None
            self._lean_pass.append(chosen)
        return self._lean_pass[0]

    @property
    def decoding(self) -> str:
        return self.decode.way

    def prompt_logits(self, ids: Sequence[int]) -> Iterator[Tensor]:
        """Logits [some, vocab] float32 after each of `ids`, by passes of their own: the cache stays as it is.

        Not all at once: for a vocabulary of 256,000 they are a megabyte a token.
        """
        cache = make_cache(self.model.config)
        for start in range(0, len(ids), LOGITS_CELL):
            with torch.inference_mode():
                input_ids = torch.tensor([list(ids[start : start + LOGITS_CELL])], device=self.device)
                output = self.model(input_ids=input_ids, use_cache=True, **{self._cache_argument: cache})
                logits: Tensor = output.logits[0].float().cpu()
            yield logits

    def rewind(self, length: int) -> int:
        """Keep at most `length` cached positions; all of them can be kept, or for recurrent caches none."""
        kept = truncate(self._cache, length) if length > 0 else 0
        if kept == 0 and self._keeps_buffers:
            truncate(self._cache, 0)
        elif kept == 0:
            self._cache = make_cache(self.model.config)
        self._length = kept
        return kept

    @property
    def _keeps_buffers(self) -> bool:
        """Whether the cache is only emptied: what runs single tokens may know its memory."""
        step = None if self._decode is None else self._decode.step
        return step is not None and step.fits(self._cache) and step.keeps(self._cache)

    @torch.inference_mode()
    def take(self, start: int, stop: int) -> SavedPositions | None:
        """A copy of the cached positions `start` to `stop`; None for recurrent caches, and without memory for it."""
        try:
            return copy_out(self._cache, start, stop)
        except torch.OutOfMemoryError:
            return None

    @torch.inference_mode()
    def restore(self, saved: Sequence[SavedPositions]) -> None:
        """Append positions that `take` gave."""
        append(self._cache, saved)
        self._length += sum(part.tensors[0].shape[-2] for part in saved)

    def residuals(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The residual [batch, seq, d_model] of right-padded `ids` [batch, seq], `mask` True on real tokens.

        The pass stops after the hooked layer and keeps no cache. No attention mask is needed: attention looks
        back only, so padding on the right never reaches a real token. Rows at padding positions are zero.
        """
        if ids.shape != mask.shape or ids.dim() != 2:
            raise ModelError(f"ids {list(ids.shape)} and mask {list(mask.shape)} must both be [batch, seq].")
        if ids.shape[1] > self.context_length:
            raise ModelError(
                f"Windows of {ids.shape[1]} tokens cannot run: the context is {self.context_length}. "
                f"Set sweep.window to {self.context_length} or less."
            )
        mask = mask.to(self.device, torch.bool)
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise ModelError("The batch is not padded on the right: a real token follows padding.")
        input_ids = ids.to(self.device)
        forward: Callable[[], Any] = lambda: self.model(input_ids=input_ids, use_cache=False)  # noqa: E731
        if (lean := self.lean_pass) is not None and lean.fits(ids.shape[1]):
            residual = lean.run(input_ids)
        else:
            residual = residual_after(self.model, self.layer, forward)  # [batch, seq, d_model]
        return residual.masked_fill(~mask.unsqueeze(-1), 0)
