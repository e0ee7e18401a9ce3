"""What is verified: a model, an SAE and a tokenizer as they were loaded, and real text to try them on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import polars as pl
import torch
from torch import Tensor

from neuroscope.corpus import CHAT
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep.windows import ChunkTokens, batches, make_batch, tokenize


class ReadsWindows(Protocol):
    """A backend that gives the residual [batch, seq, d_model] of right-padded windows."""

    def residuals(self, ids: Tensor, mask: Tensor) -> Tensor: ...


@dataclass(eq=False)
class Subject:
    """The loaded pairing. A check replaces nothing here: what is wrong in it must show."""

    model: Any
    backend: TorchBackend
    chat: ChatTokenizer
    sae: SparseAutoencoder
    """With its decoder."""
    texts: Mapping[str, ChunkTokens]
    """stratum -> its sample of the corpus."""
    window: int = 256
    batch: int = 16
    bos: bool = True
    outlier_norm: float = 10.0
    published_l0: float | None = None

    @cached_property
    def residuals(self) -> dict[str, Tensor]:
        """stratum -> [n, d_in] float32 on the SAE's device, as the sweep measures: without BOS, scaffold, outliers."""
        return {stratum: residuals_of(self, self.backend, tokens) for stratum, tokens in self.texts.items()}

    @cached_property
    def windows(self) -> list[list[int]]:
        """The first windows of every stratum, each with the BOS that the sweep gives it."""
        return [
            batch.ids[row][batch.mask[row]].tolist()
            for tokens in self.texts.values()
            for batch in [next(self._batches(tokens))]
            for row in range(min(2, len(batch.ids)))
        ]

    def _batches(self, tokens: ChunkTokens) -> Iterator[Any]:
        bos_id = self.chat.bos_id if self.bos else None
        for windows in batches(tokens, self.window, bos_id, self.batch):
            yield make_batch(tokens, windows, bos_id)


@torch.inference_mode()
def residuals_of(subject: Subject, backend: ReadsWindows, tokens: ChunkTokens) -> Tensor:
    """[n, d_in] of the measured positions of `tokens` through `backend`, in the order of the windows."""
    rows = []
    for batch in subject._batches(tokens):
        residual = backend.residuals(batch.ids, batch.mask)
        content = (batch.token >= 0) & (tokens.segment[np.maximum(batch.token, 0)] >= 0)
        rows.append(residual[torch.from_numpy(content).to(residual.device)].float())
    x = torch.cat(rows).to(subject.sae.device)
    norm = torch.linalg.vector_norm(x, dim=-1)
    return x[norm <= subject.outlier_norm * norm.median()]


def sample_texts(
    documents: pl.DataFrame, chat: ChatTokenizer, *, tokens: int, bos: bool
) -> dict[str, ChunkTokens]:
    """Documents of every stratum, in order of doc_id, until each has its equal part of `tokens`."""
    strata = documents.partition_by("stratum", as_dict=True)
    wanted = max(1, tokens // max(1, len(strata)))
    samples = {}
    for (stratum,), frame in sorted(strata.items()):
        if stratum == CHAT and chat.tokenizer.chat_template is None:
            continue
        texts, found = [], 0
        for text in frame.sort("doc_id")["text"]:
            texts.append(text)
            found += len(tokenize(chat, str(stratum), [text], bos=bos))
            if found >= wanted:
                break
        samples[str(stratum)] = tokenize(chat, str(stratum), texts, bos=bos)
    return samples
