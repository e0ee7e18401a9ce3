"""Scores in figures: how many labels of each source were scored by each method, how many failed, and how they did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope.autointerp.accuracy import Z95
from neuroscope.autointerp.evidence import read_columns
from neuroscope.autointerp.score_rows import SCHEMA


def summarise(scores: Path, labels: Mapping[str, int], min_score: float) -> list[dict[str, Any]]:
    """A row for each source and method of scores.parquet.

    `labels` counts the labels of each source: one that nobody judged has a row too, with method None. The interval is
    that of the mean over labels. A label is under `min_score` by its own balanced accuracy.
    """
    score = pl.col("balanced_accuracy")
    table = read_columns(scores, tuple(SCHEMA)).group_by("source", "method")
    found = table.agg(
        scored=score.count(),
        failed=score.null_count(),
        mean=score.mean(),
        half=Z95 * score.std() / score.count().sqrt(),
        under_min_score=(score < min_score).sum(),
        windows_failed=pl.col("failed").sum(),
    )
    rows = [
        _row(labels.get(row["source"], row["scored"] + row["failed"]), row)
        for row in found.sort("source", "method").collect().iter_rows(named=True)
    ]
    unjudged = sorted(set(labels) - {row["source"] for row in rows})
    nothing = {"method": None, "scored": 0, "failed": 0, "mean": None, "half": None, "under_min_score": 0}
    rows += [_row(labels[source], {"source": source, **nothing, "windows_failed": 0}) for source in unjudged]
    return rows


def _row(labels: int, row: Mapping[str, Any]) -> dict[str, Any]:
    mean, half = row["mean"], row["half"]
    return {
        "source": row["source"],
        "method": row["method"],
        "labels": labels,
        "scored": row["scored"],
        "failed": row["failed"],
        "mean_balanced_accuracy": mean,
        "low": None if half is None else max(0.0, mean - half),
        "high": None if half is None else min(1.0, mean + half),
        "under_min_score": row["under_min_score"],
        "windows_failed": row["windows_failed"],
    }
