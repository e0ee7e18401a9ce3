"""Scores in figures."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from neuroscope.autointerp.score_rows import SCHEMA
from neuroscope.autointerp.summary import summarise


def written(path: Path, rows: list[tuple[int, str, str, float | None, int]]) -> Path:
    whole = [
        (f, source, method, score, score, score, 1, 1, 1, 1, failed)
        for f, source, method, score, failed in rows
    ]
    pl.DataFrame(whole, schema=SCHEMA, orient="row").write_parquet(path)
    return path


def test_labels_without_a_score_are_counted_and_in_no_mean(tmp_path: Path) -> None:
    scores = written(
        tmp_path / "scores.parquet",
        [
            (0, "claude", "detection", 0.9, 0),
            (1, "claude", "detection", 0.5, 3),
            (2, "claude", "detection", None, 70),
            (0, "claude", "detection_near_miss", 0.7, 0),
            (0, "tokens", "rule", 0.8, 0),
        ],
    )
    detection, near, rule = summarise(scores, {"claude": 3, "tokens": 5}, 0.6)
    assert (detection["source"], detection["method"]) == ("claude", "detection")
    assert (detection["labels"], detection["scored"], detection["failed"]) == (3, 2, 1)
    assert detection["mean_balanced_accuracy"] == pytest.approx(0.7)
    assert detection["low"] == pytest.approx(0.7 - 1.96 * 0.2828427 / 2**0.5, abs=1e-3)
    assert (detection["under_min_score"], detection["windows_failed"]) == (1, 73)
    assert (near["method"], near["scored"]) == ("detection_near_miss", 1)
    assert (near["low"], near["high"]) == (None, None), "one label has no spread"
    assert (rule["labels"], rule["scored"], rule["under_min_score"]) == (5, 1, 0)


def test_a_source_that_nobody_judged_is_not_left_out(tmp_path: Path) -> None:
    scores = written(tmp_path / "scores.parquet", [(0, "tokens", "rule", 0.8, 0)])
    rows = summarise(scores, {"tokens": 1, "neuronpedia": 9}, 0.6)
    assert [(row["source"], row["method"], row["labels"], row["scored"]) for row in rows] == [
        ("tokens", "rule", 1, 1),
        ("neuronpedia", None, 9, 0),
    ]


def test_no_score_at_all_makes_no_figure(tmp_path: Path) -> None:
    scores = written(tmp_path / "scores.parquet", [(0, "claude", "detection", None, 70)])
    (row,) = summarise(scores, {"claude": 1}, 0.6)
    assert row["mean_balanced_accuracy"] is row["low"] is row["high"] is None
    assert summarise(written(tmp_path / "none.parquet", []), {}, 0.6) == []
