"""Puts chunk files together in the plan's order: statistics, examples with their windows, and the pool.

Files are read one after the other, twice: once for what is kept, once for the windows of it. Memory depends
on d_sae and the numbers of examples, not on the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.examples import (
    HALF_WINDOW,
    HELD_OUT_SURPLUS,
    KINDS,
    WINDOW,
    Collector,
    Firings,
    gather_windows,
    rank_in_group,
    spread_over_quantiles,
    window_rows,
)
from neuroscope.stats import FeatureStats
from neuroscope.sweep.activations import expand
from neuroscope.sweep.chunk_file import ChunkFile
from neuroscope.sweep.plan import Chunk, SweepOptions

ALL = "all"
"""The stratum that is the sum of the others."""


@dataclass(slots=True)
class Merged:
    """What the first reading keeps."""

    stats: dict[str, FeatureStats]
    """Per stratum, and `all`."""
    examples: dict[str, Firings]
    pool: Firings
    """The pool's windows as rows of feature 0, in order of their hash."""
    documents: dict[str, int] = field(default_factory=dict)
    coverage: list[tuple[int, int]] = field(default_factory=list)
    """(tokens measured, features seen) after each chunk."""
    quarantined: list[str] = field(default_factory=list)
    outliers: int = 0
    halved: dict[str, int] = field(default_factory=dict)
    """Chunks that ran with a smaller batch for lack of memory, with that batch."""


def merge_chunks(chunks: Sequence[Chunk], paths: Sequence[Path], d_sae: int, options: SweepOptions) -> Merged:
    """Read every chunk once, in the plan's order. Raises ArtefactError for a missing or damaged file."""
    wanted = (options.per_feature, options.sampled, HELD_OUT_SURPLUS * options.held_out)
    collectors = {kind: Collector(k) for kind, k in zip(KINDS, wanted, strict=True)}
    pool = Collector(options.pool)
    merged = Merged({}, {}, Firings.empty())
    seen = np.zeros(d_sae, np.bool_)
    tokens = 0
    for number, (chunk, path) in enumerate(zip(chunks, paths, strict=True)):
        with ChunkFile(path) as file:
            sums, notes = file.stats(), file.notes()
            for kind, collector in collectors.items():
                collector.add(file.firings(kind, number))
            pool.add(_pool_candidates(file, number))
        merged.stats.setdefault(chunk.stratum, FeatureStats(d_sae)).merge_sparse(sums)
        merged.documents[chunk.stratum] = merged.documents.get(chunk.stratum, 0) + len(chunk.doc_ids)
        tokens += int(sums["n_tokens"])
        seen[sums["features"]] = True
        merged.coverage.append((tokens, int(seen.sum())))
        merged.quarantined += notes["quarantined"]
        merged.outliers += notes["outliers"]
        if notes["batch"] < options.batch:
            merged.halved[chunk.id] = notes["batch"]
    merged.stats = dict(sorted(merged.stats.items()))
    merged.stats[ALL] = _sum(list(merged.stats.values()), d_sae)
    merged.examples = {kind: collector.finish() for kind, collector in collectors.items()}
    held_out = merged.examples["held_out"]
    spread = spread_over_quantiles(held_out.feature, held_out.activation, options.held_out)
    merged.examples["held_out"] = held_out.take(np.flatnonzero(spread))
    merged.pool = pool.finish()
    return merged


def _sum(parts: Sequence[FeatureStats], d_sae: int) -> FeatureStats:
    total = FeatureStats(d_sae)
    for part in parts:
        total.merge(part)
    return total


def _pool_candidates(file: ChunkFile, number: int) -> Firings:
    token = file["pool_token"]
    nothing = np.zeros(len(token), np.float32)
    return Firings(
        np.zeros_like(token), file["pool_key"], nothing, token, np.full(len(token), number, np.int32)
    )


def stats_frame(stats: dict[str, FeatureStats]) -> pl.DataFrame:
    """stats.parquet: one row per feature and stratum, in that order."""
    frames = [
        pl.DataFrame(
            {
                "feature": np.arange(part.d_sae, dtype=np.int32),
                "stratum": [stratum] * part.d_sae,
                "n_tokens": np.full(part.d_sae, part.n_tokens, np.int64),
                "n_fired": part.n_fired,
                "sum": part.total,
                "sum_sq": part.total_sq,
                "max_activation": part.maximum,
                "histogram": pl.Series(part.histogram).arr.to_list(),
            }
        )
        for stratum, part in stats.items()
    ]
    return pl.concat(frames).sort("feature", "stratum")


def _by_chunk(firings: Firings) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Chunk numbers with the rows of `firings` that lie in them."""
    order = np.argsort(firings.chunk, kind="stable")
    numbers, starts = np.unique(firings.chunk[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def examples_frame(merged: Merged, chunks: Sequence[Chunk], paths: Sequence[Path]) -> pl.DataFrame:
    """examples.parquet: the second reading gathers windows for the firings that were kept."""
    kept = Firings.concatenate([merged.examples[kind] for kind in KINDS])
    kind = np.repeat(np.arange(len(KINDS)), [len(merged.examples[kind]) for kind in KINDS])
    rank = np.concatenate([rank_in_group(merged.examples[kind].feature) for kind in KINDS])
    places = _places(kept, chunks, paths)
    frame = pl.DataFrame(
        {
            "feature": kept.feature,
            "kind": pl.Series(KINDS).gather(kind),
            "rank": rank.astype(np.int32),
            "activation": kept.activation,
        }
    )
    return frame.hstack(places).sort("feature", "kind", "rank")


def _places(kept: Firings, chunks: Sequence[Chunk], paths: Sequence[Path]) -> pl.DataFrame:
    """Where each firing is: token_id, window, doc_id, position, stratum; rows in the order of `kept`."""
    windows = np.full((len(kept), WINDOW), -1, np.int32)
    position = np.zeros(len(kept), np.int32)
    document = np.zeros(len(kept), np.int64)  # among the documents of all chunks
    first = np.cumsum([0, *(len(chunk.doc_ids) for chunk in chunks)])
    for number, rows in _by_chunk(kept):
        with ChunkFile(paths[number]) as file:
            tokens = file.tokens()
        at = kept.token[rows]
        windows[rows] = gather_windows(tokens.ids, window_rows(at, tokens.segment))
        position[rows] = tokens.position[at]
        document[rows] = first[number] + tokens.document[at]
    doc_ids = pl.Series([doc_id for chunk in chunks for doc_id in chunk.doc_ids], dtype=pl.String)
    strata = pl.Series([chunk.stratum for chunk in chunks], dtype=pl.String)
    return pl.DataFrame(
        {
            "token_id": windows[:, HALF_WINDOW],
            "window": pl.Series(windows, dtype=pl.Array(pl.Int32, WINDOW)),
            "doc_id": doc_ids.gather(document),
            "position": position,
            "stratum": strata.gather(kept.chunk),
        }
    )


def pool_frame(merged: Merged, chunks: Sequence[Chunk], paths: Sequence[Path]) -> pl.DataFrame:
    """pool.parquet: held-out windows with every firing in them, in order of their hash.

    `features`, `offsets` (0 to 24 in the window) and `activations` are parallel lists. Positions left out for
    their norm have no firings.
    """
    pool = merged.pool
    places = _places(pool, chunks, paths).drop("token_id")
    parts: list[dict[str, Any]] = []
    for number, windows in _by_chunk(pool):
        with ChunkFile(paths[number]) as file:
            rows = window_rows(pool.token[windows], file["segment"]).reshape(-1)
            token, feature, value = (file[f"pool_firing_{name}"] for name in ("token", "feature", "value"))
        starts = np.searchsorted(token, rows, side="left")
        counts = np.where(rows < 0, 0, np.searchsorted(token, rows, side="right") - starts)
        firing = expand(starts, counts)
        cell = np.repeat(np.arange(len(rows)), counts)
        parts.append(
            {
                "window_id": windows[cell // WINDOW].astype(np.int32),
                "features": feature[firing],
                "offsets": (cell % WINDOW).astype(np.uint8),
                "activations": value[firing],
            }
        )
    frame = places.select(pl.int_range(pl.len(), dtype=pl.Int32).alias("window_id"), pl.all())
    schema = {"window_id": pl.Int32, "features": pl.Int32, "offsets": pl.UInt8, "activations": pl.Float32}
    firings = pl.concat([pl.DataFrame(schema=schema), *(pl.DataFrame(part, schema=schema) for part in parts)])
    lists = firings.sort("window_id", maintain_order=True).group_by("window_id", maintain_order=True).all()
    empty = [pl.col(name).fill_null([]) for name in ("features", "offsets", "activations")]
    return frame.join(lists, on="window_id", how="left", maintain_order="left").with_columns(empty)
