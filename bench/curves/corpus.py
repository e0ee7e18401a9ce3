"""The sweep of 1, 4 and 16 times as much text: seconds and peak memory.

Shard and merge as the pipeline starts them, one after the other, each in a process of its own, with the pairing's real
model and SAE. Documents are real ones, all cut to the same length, so that the number of documents is the amount of
text. Few examples a feature are kept, so that already the smallest corpus has what is kept of any. What both take for
a corpus of one document is the constant part of their time: libraries, model, tables of all features.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from bench.curve import Curve, series
from bench.figures.sweep import FEW, make_corpus
from bench.stages import PAIRING, Spent, stage
from neuroscope import corpus, settings
from neuroscope.manifest import SourcesLock
from neuroscope.settings import Settings

TIMES = (1, 4, 16)
DOCUMENTS = 48
"""Of the smallest corpus: three chunks."""
QUICK_DOCUMENTS = 8
CHARACTERS = 400
"""Of each document."""


def texts(chosen: Settings, folder: Path) -> pl.DataFrame:
    """Documents of one kind, all of the same length."""
    whole = corpus.read(make_corpus(chosen, folder))
    long = (pl.col("stratum") == "encyclopedia") & (pl.col("text").str.len_chars() >= CHARACTERS)
    return whole.filter(long).with_columns(pl.col("text").str.head(CHARACTERS))


def sweep(documents: pl.DataFrame, chosen: Settings, folder: Path) -> dict[str, Spent]:
    """What both stages take for `documents`."""
    folder.mkdir()
    text = folder / "corpus.parquet"
    documents.write_parquet(text)
    overrides: dict[str, Any] = {
        **FEW,
        "sweep.threads": chosen.sweep.threads,
        "examples.samples": len(documents),
    }
    sae = SourcesLock(chosen.results / "sources.lock.json").resolve(chosen.pairing.sae.uri).path
    return {name: stage(name, overrides, text, sae, folder) for name in ("shard", "merge")}


def seconds(stages: dict[str, Spent]) -> float:
    return round(sum(spent.seconds for spent in stages.values()), 3)


def measure(quick: bool) -> Curve:
    chosen = settings.load(PAIRING)
    sizes = [times * (QUICK_DOCUMENTS if quick else DOCUMENTS) for times in TIMES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = texts(chosen, folder)
        start = min(seconds(sweep(documents.head(1), chosen, folder / name)) for name in ("cold", "warm"))
        found = [sweep(documents.head(size), chosen, folder / str(size)) for size in sizes]
    took = [seconds(stages) for stages in found]
    peaks = [round(max(spent.peak_mb for spent in stages.values()), 1) for stages in found]
    return Curve(
        "corpus",
        "The sweep of 1, 4 and 16 times as much text",
        f"documents of {CHARACTERS} characters",
        sizes,
        [
            series(
                "shard and merge",
                "s",
                sizes,
                took,
                grows=took[0] - start,
                why="in proportion, but for the start",
            ),
            series("peak memory", "MB", sizes, peaks, grows=0, why="constant"),
        ],
        {
            "start_s": start,
            **{
                f"{stage}_{what}": [round(getattr(stages[stage], what), 2) for stages in found]
                for stage in ("shard", "merge")
                for what in ("seconds", "peak_mb")
            },
        },
    )
