"""The residuals an SAE is trained on: collected once by the sweep's own forward pass, read in random order.

BOS, scaffold and positions of outlying norm are left out; documents are split into training and held-out by a
hash of their id. Nothing here knows how training works.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from neuroscope.errors import NeuroscopeError
from neuroscope.models.chat import ChatTokenizer
from neuroscope.sources import replace_atomically
from neuroscope.sweep.activations import ResidualSource
from neuroscope.sweep.plan import Chunk, plan_chunks
from neuroscope.sweep.progress import token_bar
from neuroscope.sweep.windows import batches, make_batch, tokenize

POOL_TOKENS = 1 << 18
"""Tokens held in memory and shuffled together."""
PARTS = ("train", "held_out")


def is_held_out(doc_id: str, share: float) -> bool:
    """Whether a document is kept from training: a hash of its id, so the same wherever it is asked."""
    return int(doc_id[-8:], 16) < share * 2**32


@dataclass(frozen=True, slots=True)
class ActivationFiles:
    """Raw residuals in float16, one file [n, d_in] per chunk and part."""

    directory: Path
    counts: Mapping[str, tuple[int, int]]
    """chunk name -> tokens for training, tokens held out."""
    mean: NDArray[np.float64]  # [d_in] over training tokens
    scale: float
    """sqrt(d_in / mean squared norm) over training tokens: scaled inputs have mean squared norm d_in."""
    key: str
    """Names what the files were made from."""
    by_stratum: Mapping[str, int] = field(default_factory=dict)
    """Tokens for training, per stratum."""

    def tokens(self, part: str) -> int:
        return sum(count[PARTS.index(part)] for count in self.counts.values())

    def batches(self, batch: int, seed: int, start: int = 0) -> Iterator[NDArray[np.float16]]:
        """Endless batches [batch, d_in] in an order that `seed` alone decides; the first `start` are skipped unread."""
        names = [name for name, (train, _) in self.counts.items() if train]
        if self.tokens("train") < batch:
            raise NeuroscopeError(f"{self.tokens('train')} training tokens do not fill a batch of {batch}.")
        epoch = 0
        while True:
            rng = np.random.default_rng([seed, epoch])
            for pool in self._pools([names[i] for i in rng.permutation(len(names))], batch):
                size = sum(self.counts[name][0] for name in pool)
                order = rng.permutation(size)[: size // batch * batch].reshape(-1, batch)
                if start >= len(order):
                    start -= len(order)
                    continue
                rows = np.concatenate([self._load(name, "train") for name in pool])
                for indices in order[start:]:
                    yield rows[indices]
                start = 0
            epoch += 1

    def held_out(self) -> Iterator[NDArray[np.float16]]:
        """Every held-out residual, a file at a time."""
        for name, (_, count) in self.counts.items():
            if count:
                yield self._load(name, "held_out")

    def _pools(self, names: list[str], batch: int) -> Iterator[list[str]]:
        pool: list[str] = []
        size = 0
        for name in names:
            pool.append(name)
            size += self.counts[name][0]
            if size >= max(POOL_TOKENS, batch):
                yield pool
                pool, size = [], 0
        if size >= batch:
            yield pool

    def _load(self, name: str, part: str) -> NDArray[np.float16]:
        array: NDArray[np.float16] = np.load(self.directory / f"{name}.{part}.npy", allow_pickle=False)
        return array


def collect(
    documents: pl.DataFrame,
    chat: ChatTokenizer,
    backend: ResidualSource,
    directory: Path,
    *,
    tokens: int,
    held_out: float,
    window: int,
    batch: int,
    bos: bool,
    outlier_norm: float,
    chunk_documents: int,
    made_from: str,
) -> ActivationFiles:
    """Runs documents through the model up to the hooked layer until `tokens` positions are kept.

    `made_from` names model, layer and dtype. A finished chunk is not run again, so a killed run goes on.
    """
    directory.mkdir(parents=True, exist_ok=True)
    texts: dict[str, str] = dict(zip(documents["doc_id"], documents["text"], strict=True))
    counts: dict[str, tuple[int, int]] = {}
    by_stratum: Counter[str] = Counter()
    sums: list[tuple[NDArray[np.float64], float]] = []
    mean_chars = float(documents["text"].str.len_chars().mean() or 1)  # type: ignore[arg-type]
    conditions = [made_from, held_out, window, batch, bos, outlier_norm]
    key = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:16]
    collector = _Collector(chat, backend, held_out, window, batch, chat.bos_id if bos else None, outlier_norm)
    by_size = {name: len(frame) for (name,), frame in documents.group_by("stratum")}
    chunks = plan_chunks(documents, documents.height, chunk_documents, by_size)
    with token_bar(round(min(tokens * 4, documents.height * mean_chars)), "activations") as bar:
        for chunk in chunks:
            name = f"{key}-{chunk.id}-{_digest(chunk)}"
            if not (directory / f"{name}.json").exists():
                collector.run(
                    chunk, [texts[doc_id] for doc_id in chunk.doc_ids], directory / name, bar.advance
                )
            report = json.loads((directory / f"{name}.json").read_text())
            counts[name] = (report["train"], report["held_out"])
            by_stratum[chunk.stratum] += report["train"]
            sums.append((np.array(report["sum"]), report["sum_sq"]))
            if sum(train + held for train, held in counts.values()) >= tokens:
                break
    count = sum(train for train, _ in counts.values())
    mean = np.sum([s for s, _ in sums], axis=0) / max(count, 1)
    mean_square = sum(sq for _, sq in sums) / max(count, 1)
    data_key = hashlib.sha256("\0".join(counts).encode()).hexdigest()[:16]
    return ActivationFiles(directory, counts, mean, math.sqrt(len(mean) / mean_square), data_key, by_stratum)


def _digest(chunk: Chunk) -> str:
    return hashlib.sha256("".join(chunk.doc_ids).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class _Collector:
    chat: ChatTokenizer
    backend: ResidualSource
    held_out: float
    window: int
    batch: int
    bos_id: int | None
    outlier_norm: float

    def run(self, chunk: Chunk, texts: list[str], stem: Path, on_tokens: Callable[[int], None]) -> None:
        """Writes the residuals of one chunk's content, and last a report that says it is whole."""
        tokens = tokenize(self.chat, chunk.stratum, texts, bos=self.bos_id is not None)
        rows, documents = [], []
        for windows in batches(tokens, self.window, self.bos_id, self.batch):
            batch = make_batch(tokens, windows, self.bos_id)
            residual = self.backend.residuals(batch.ids, batch.mask).flatten(0, 1)
            cells = np.flatnonzero((batch.token >= 0) & (tokens.segment[np.maximum(batch.token, 0)] >= 0))
            rows.append(residual[torch.from_numpy(cells).to(residual.device)].float().cpu().numpy())
            documents.append(tokens.document[batch.token.reshape(-1)[cells]])
            on_tokens(int((batch.token >= 0).sum()))
        x = np.concatenate(rows)
        held = np.array([is_held_out(doc_id, self.held_out) for doc_id in chunk.doc_ids])[
            np.concatenate(documents)
        ]
        norm = np.linalg.norm(x, axis=1)
        sound = np.isfinite(norm) & (norm <= self.outlier_norm * np.nanmedian(norm))
        parts = {"train": x[sound & ~held], "held_out": x[sound & held]}
        for part, values in parts.items():
            file = stem.with_name(f"{stem.name}.{part}.npy")
            with replace_atomically(file) as temporary, temporary.open("wb") as stream:
                np.save(stream, values.astype(np.float16))
        train = parts["train"].astype(np.float64)
        report = {
            "stratum": chunk.stratum,
            "train": len(train),
            "held_out": len(parts["held_out"]),
            "outliers": int((~sound).sum()),
            "sum": train.sum(0).tolist(),
            "sum_sq": float(np.square(train).sum()),
        }
        with replace_atomically(stem.with_name(f"{stem.name}.json")) as temporary:
            temporary.write_text(json.dumps(report))
