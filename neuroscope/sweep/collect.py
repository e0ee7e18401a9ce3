"""From a chunk's firings to its partial results: statistics, candidates for examples, windows of the pool.

All of it is a function of the chunk. How it is stored is `chunk_file`'s business, how chunks are put together
`merging`'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroscope.examples import (
    HELD_OUT_SURPLUS,
    Firings,
    activation_key,
    document_key,
    firing_hash,
    is_held_out,
    largest_per_document,
    position_hash,
    smallest_per_feature,
    window_rows,
)
from neuroscope.stats import sparse_sums
from neuroscope.sweep.activations import ChunkActivations
from neuroscope.sweep.chunk_file import Arrays
from neuroscope.sweep.plan import Chunk, SweepOptions
from neuroscope.sweep.windows import ChunkTokens


def collect(
    chunk: Chunk, tokens: ChunkTokens, acts: ChunkActivations, d_sae: int, options: SweepOptions
) -> Arrays:
    """The chunk's partial results as arrays for its file."""
    sums = sparse_sums(d_sae, acts.feature, acts.value, acts.l0)
    arrays: Arrays = {f"stats_{name}": array for name, array in sums.items()}
    keys = np.array([document_key(doc_id) for doc_id in chunk.doc_ids], np.uint64)
    held_out = np.array([is_held_out(doc_id) for doc_id in chunk.doc_ids], np.bool_)
    for kind, firings in _candidates(tokens, acts, keys, held_out, options).items():
        for name in ("feature", "key", "activation", "token"):
            arrays[f"{kind}_{name}"] = getattr(firings, name)
    arrays |= _pool(tokens, acts, keys, held_out, options)
    arrays |= {name: getattr(tokens, name) for name in ("ids", "segment", "lengths")}
    arrays["doc_ids"] = np.array(chunk.doc_ids)
    return arrays


def _candidates(
    tokens: ChunkTokens,
    acts: ChunkActivations,
    keys: NDArray[np.uint64],
    held_out: NDArray[np.bool_],
    options: SweepOptions,
) -> dict[str, Firings]:
    """The firings each kind of example may need of this chunk."""
    document = tokens.document[acts.firing_token]
    position = tokens.position[acts.firing_token]
    of_held_out = held_out[document]
    random = firing_hash(options.seed, acts.feature, keys[document], position)

    def firings(rows: NDArray[Any], key: NDArray[np.uint64]) -> Firings:
        token = acts.firing_token[rows].astype(np.int32)
        return Firings(acts.feature[rows], key, acts.value[rows], token, np.zeros_like(token))

    labelling = np.flatnonzero(~of_held_out)
    best = labelling[
        largest_per_document(acts.feature[labelling], document[labelling], acts.value[labelling])
    ]
    largest = activation_key(acts.value[best])
    top = smallest_per_feature(acts.feature[best], largest, options.per_feature)
    sample = labelling[smallest_per_feature(acts.feature[labelling], random[labelling], options.sampled)]
    reserved = np.flatnonzero(of_held_out)
    wanted = HELD_OUT_SURPLUS * options.held_out
    spread = reserved[smallest_per_feature(acts.feature[reserved], random[reserved], wanted)]
    return {
        "top": firings(best[top], largest[top]),
        "sample": firings(sample, random[sample]),
        "held_out": firings(spread, random[spread]),
    }


def _pool(
    tokens: ChunkTokens,
    acts: ChunkActivations,
    keys: NDArray[np.uint64],
    held_out: NDArray[np.bool_],
    options: SweepOptions,
) -> Arrays:
    """Candidate windows of held-out documents, and every firing within them."""
    token = acts.token[held_out[tokens.document[acts.token]]]
    key = position_hash(options.seed, keys[tokens.document[token]], tokens.position[token])
    order = np.argsort(key, kind="stable")[: options.pool]
    rows = window_rows(token[order], tokens.segment)
    wanted = np.zeros(len(tokens), np.bool_)
    wanted[rows[rows >= 0]] = True
    within = wanted[acts.firing_token]
    return {
        "pool_token": token[order].astype(np.int32),
        "pool_key": key[order],
        "pool_firing_token": acts.firing_token[within].astype(np.int32),
        "pool_firing_feature": acts.feature[within],
        "pool_firing_value": acts.value[within],
    }
