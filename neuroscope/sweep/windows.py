"""From documents to batches: token ids, what of them counts, and rows of equal length.

Only content is measured: BOS, padding and the scaffold of chat templates are run through the model and left
out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from neuroscope.corpus import CHAT
from neuroscope.errors import CorpusError, PromptError
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.conversation import JOINT, Turn, read_messages


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTokens:
    """The tokens of a chunk's documents, one after the other; every array but `lengths` is [n]."""

    ids: NDArray[np.int32]
    segment: NDArray[np.int32]
    """Number of the stretch of text: a document, or one message of a conversation. -1 for scaffold."""
    document: NDArray[np.int32]
    position: NDArray[np.int32]
    """Index in the document, BOS not counted."""
    lengths: NDArray[np.int64]
    """Tokens of each document."""

    def __len__(self) -> int:
        return len(self.ids)


def tokenize(chat: ChatTokenizer, stratum: str, texts: Sequence[str], *, bos: bool) -> ChunkTokens:
    """Tokenise documents; special-token strings in text are text.

    With `bos`, a template's own BOS is taken away, since every window gets one.
    """
    prompts = []
    for text in texts:
        prompt = _talk(chat, text) if stratum == CHAT else chat.encode_text(text, bos=False)
        skip = int(bos and prompt.ids[:1] == [chat.bos_id] and not prompt.content[0])
        prompts.append((prompt.ids[skip:], prompt.content[skip:]))
    lengths = np.array([len(ids) for ids, _ in prompts], np.int64)
    ids = np.concatenate([np.asarray(ids, np.int32) for ids, _ in prompts])
    content = np.concatenate([np.asarray(content, np.bool_) for _, content in prompts])
    document = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
    position = (np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)).astype(np.int32)
    begins = content & ((position == 0) | ~np.concatenate([[False], content[:-1]]))
    segment = np.where(content, np.cumsum(begins) - 1, -1).astype(np.int32)
    return ChunkTokens(ids, segment, document, position, lengths)


def _talk(chat: ChatTokenizer, text: str) -> Prompt:
    """A conversation through the chat template; as plain text where there is none, or it refuses these turns."""
    turns = _turns(text)
    try:
        return chat.render([{"role": turn.role, "content": turn.text} for turn in turns], generation=False)
    except PromptError:
        return chat.encode_text(JOINT.join(turn.text for turn in turns if turn.text), bos=False)


def _turns(text: str) -> list[Turn]:
    try:
        return read_messages(json.loads(text))
    except (json.JSONDecodeError, PromptError) as error:
        raise CorpusError(
            f"A document of the stratum {CHAT!r} is no conversation ({error}): {text[:80]!r}. Its documents are JSON "
            'lists of {"role", "content"}; give plain text another stratum.'
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows for one forward pass, padded on the right."""

    ids: torch.Tensor  # [rows, width] int64
    mask: torch.Tensor  # [rows, width] bool, True on real tokens
    token: NDArray[np.int64]
    """Index of each cell's token in the chunk, -1 on BOS and padding, [rows, width]."""


def windows_of(lengths: NDArray[np.int64], body: int) -> NDArray[np.int64]:
    """Consecutive windows of at most `body` tokens, rows of (first token, tokens), longest first."""
    counts = -(-lengths // body)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.repeat(np.cumsum(lengths) - lengths, counts) + number * body
    size = np.minimum(np.repeat(lengths, counts) - number * body, body)
    order = np.argsort(-size, kind="stable")
    return np.stack([start, size], axis=1)[order]


def make_batch(tokens: ChunkTokens, windows: NDArray[np.int64], bos_id: int | None) -> Batch:
    """One batch of windows, each with BOS before it unless `bos_id` is None."""
    lead = int(bos_id is not None)
    column = np.arange(lead + int(windows[:, 1].max())) - lead
    inside = (column >= 0) & (column < windows[:, 1:])
    token = np.where(inside, windows[:, :1] + column, -1)  # [rows, width]
    ids = np.where(inside, tokens.ids[np.maximum(token, 0)], 0 if bos_id is None else bos_id)
    return Batch(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(column < windows[:, 1:]), token)


@dataclass(frozen=True, slots=True)
class BatchShape:
    """What batches are good for a device, beside the most rows; None is no limit. Part of what a result depends on."""

    cells: int | None = None
    """Rows times width of a batch; a single window may be wider."""
    padding: int | None = None
    """Cells of padding that are cheaper than a pass of their own for the windows behind them."""


CELLS_PER_THREAD = 512
"""On a CPU: a layer's intermediate results are then mostly in the cache when they are read, 8% less time in all."""

CPU_PADDING = 32
ACCELERATOR_PADDING = 1024
"""A pass through a GPU takes as long for a few hundred tokens as for one: it waits for kernels to start."""


def batch_shape(device: str, threads: int) -> BatchShape:
    if device == "cpu":
        return BatchShape(CELLS_PER_THREAD * threads, CPU_PADDING)
    return BatchShape(None, ACCELERATOR_PADDING)


NO_LIMITS = BatchShape()


def batches(
    tokens: ChunkTokens, window: int, bos_id: int | None, rows: int, shape: BatchShape = NO_LIMITS
) -> Iterator[NDArray[np.int64]]:
    """The windows of a chunk in groups of at most `rows`, longest first, cut where `shape` says."""
    lead = int(bos_id is not None)
    cut = windows_of(tokens.lengths, window - lead)
    first = padding = 0
    for last, size in enumerate(cut[:, 1].tolist()):
        width = int(cut[first, 1])
        count = last - first
        padding += width - size
        full = shape.cells is not None and (count + 1) * (width + lead) > shape.cells
        wasteful = shape.padding is not None and padding > shape.padding
        if count and (count == rows or full or wasteful):
            yield cut[first:last]
            first, padding = last, 0
    if len(cut):
        yield cut[first:]
