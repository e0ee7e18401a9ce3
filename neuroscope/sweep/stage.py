"""The two calls of the pipeline's rules: one shard, and the merge of all. Files in, files out.

The work itself is `shard`'s and `merging`'s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import torch

from neuroscope.errors import ArtefactError, ConfigError
from neuroscope.manifest import Fingerprint
from neuroscope.settings import Settings
from neuroscope.sources import file_sha256, replace_atomically
from neuroscope.sweep.documents import read_index
from neuroscope.sweep.instrument import load_instrument
from neuroscope.sweep.merging import ALL, examples_frame, merge_chunks, pool_frame, stats_frame
from neuroscope.sweep.neighbours import neighbours as find_neighbours
from neuroscope.sweep.plan import Chunk, SweepOptions, plan_chunks
from neuroscope.sweep.report import summary
from neuroscope.sweep.shard import chunk_path, sweep_chunks


def sweep_options(settings: Settings) -> SweepOptions:
    """What a chunk's result depends on, from the settings."""
    sweep, examples = settings.sweep, settings.examples
    return SweepOptions(
        window=sweep.window,
        batch=sweep.batch,
        bos=sweep.bos,
        outlier_norm=sweep.outlier_norm,
        per_feature=examples.per_feature,
        sampled=examples.sampled,
        held_out=examples.held_out,
        pool=examples.pool,
        seed=settings.corpus.seed,
    )


def planned(settings: Settings, documents: pl.DataFrame, samples: int | None = None) -> list[Chunk]:
    """The chunks of a whole sweep; `samples` documents, else the settings' for examples."""
    wanted = settings.examples.samples if samples is None else samples
    return plan_chunks(documents, wanted, settings.sweep.chunk_documents, stratum_shares(settings))


def stratum_shares(settings: Settings) -> dict[str, float]:
    """Weights of the strata among the swept documents: a stratum's is the sum of its sources'."""
    shares: dict[str, float] = {}
    for source in settings.corpus.sources:
        shares[source.stratum] = shares.get(source.stratum, 0.0) + source.share
    if settings.corpus.chat is not None:
        shares["chat"] = shares.get("chat", 0.0) + settings.corpus.chat.share
    return shares


def run_shard(
    settings: Settings,
    *,
    corpus: Path,
    sae: Path,
    output: Path,
    shard: int = 0,
    shards: int = 1,
    samples: int | None = None,
    chunks: Path | None = None,
    progress: bool = True,
) -> None:
    """Sweep every `shards`-th chunk of the plan, from number `shard` (counted from 0).

    `corpus` is corpus.parquet, `sae` the provenance.json (or the SAE's file itself), `chunks` the folder of
    cached chunk files (default: chunks/ in the results). `output` becomes a JSON file that lists the
    shard's chunks. Raises ConfigError for a shard that is not there, ModelError when the SAE does not fit
    the model.
    """
    if not 0 <= shard < shards:
        raise ConfigError(f"Shard {shard} of {shards} was asked for; shards are counted from 0.")
    torch.set_num_threads(settings.sweep.threads)
    plan = planned(settings, read_index(corpus), samples)
    instrument, chat, fingerprint = load_instrument(settings, sae=sae, corpus_sha256=file_sha256(corpus))
    started = time.monotonic()
    done = sweep_chunks(
        plan[shard::shards],
        corpus,
        instrument,
        chat,
        fingerprint=fingerprint,
        options=sweep_options(settings),
        folder=chunks or settings.results / "chunks",
        progress=progress,
        title="sweep" if shards == 1 else f"sweep {shard + 1}/{shards}",
    )
    report = {"shard": shard, "shards": shards, "fingerprint": fingerprint.to_dict(), **done}
    report["seconds"] = round(time.monotonic() - started, 3)
    _write_json(output, report)


def merge(
    settings: Settings,
    *,
    corpus: Path,
    shards: Sequence[Path],
    stats: Path,
    examples: Path,
    pool: Path,
    neighbours: Path,
    report: Path,
    samples: int | None = None,
    chunks: Path | None = None,
    stats_json: Path | None = None,
) -> None:
    """Merge the shards' chunks into stats.parquet, examples.parquet, pool.parquet and neighbours.parquet.

    `report` becomes sweep.json: fingerprint, tokens and L0 per stratum, coverage, what was left out.
    `stats_json` becomes the original specification's stats.json of all strata. Raises ArtefactError when
    shards differ in what made them or a planned chunk is in none.
    """
    options = sweep_options(settings)
    plan = planned(settings, read_index(corpus), samples)
    fingerprint = _common_fingerprint(shards)
    if fingerprint.corpus_sha256 != file_sha256(corpus):
        raise ArtefactError(
            f"{corpus} has changed since the sweep. Run `snakemake --cores 4 calibration` again."
        )
    folder = chunks or settings.results / "chunks"
    paths = [chunk_path(folder, chunk, fingerprint, options) for chunk in plan]
    merged = merge_chunks(plan, paths, fingerprint.d_sae, options)
    _write_parquet(stats, stats_frame(merged.stats))
    _write_parquet(examples, examples_frame(merged, plan, paths))
    windows = pool_frame(merged, plan, paths)
    _write_parquet(pool, windows)
    _write_parquet(neighbours, find_neighbours(windows, fingerprint.d_sae))
    if stats_json is not None:
        merged.stats[ALL].finish().to_json(
            stats_json, sae_id=settings.pairing.sae.uri, fingerprint=fingerprint.to_dict()
        )
    _write_json(report, summary(merged, fingerprint, plan, options))


def _common_fingerprint(shards: Sequence[Path]) -> Fingerprint:
    found = [_read_fingerprint(path) for path in shards]
    for path, fingerprint in zip(shards, found, strict=True):
        if fingerprint != found[0]:
            keys = [field.name for field in fields(Fingerprint)]
            differences = "; ".join(fingerprint.mismatches(found[0], keys=keys))
            raise ArtefactError(
                f"{path} and {shards[0]} were made under different conditions: {differences}. "
                "Run the sweep again, all of it on one kind of machine."
            )
    return found[0]


def _read_fingerprint(path: Path) -> Fingerprint:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return Fingerprint.from_dict(report["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{path} is not a shard's report ({error}). Run the sweep again.") from error


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replace_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")


def _write_parquet(path: Path, frame: pl.DataFrame) -> None:
    with replace_atomically(path) as temporary:
        frame.write_parquet(temporary, compression="zstd")
