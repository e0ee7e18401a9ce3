"""Labels that the user has are taken from a file, and checked like any other."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from autointerp.emulated import FEATURES, Sweep
from neuroscope.autointerp.outcome import LabelCounts
from neuroscope.autointerp.own import take_own_labels
from neuroscope.errors import ArtefactError
from neuroscope.labels import read_labels


def take(path: Path, sweep: Sweep) -> LabelCounts:
    folder = path.parent
    return take_own_labels(path, stats=sweep.stats, out=folder / "file.parquet", states=folder / "s.parquet")


def write(path: Path) -> Path:
    rows = {"feature": [2, 0], "label": ["numbers, all", "Paris"], "confidence": ["high", None]}
    if path.suffix == ".json":
        path.write_text(
            json.dumps({str(f): label for f, label in zip(*list(rows.values())[:2], strict=True)})
        )
    elif path.suffix == ".csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


@pytest.mark.parametrize("name", ["mine.json", "mine.csv", "mine.parquet"])
def test_labels_of_a_file_are_taken(name: str, emulated_sweep: Sweep, tmp_path: Path) -> None:
    counts = take(write(tmp_path / name), emulated_sweep)
    labels = read_labels(tmp_path / "file.parquet").by_feature
    assert {feature: label.label for feature, label in labels.items()} == {0: "Paris", 2: "numbers, all"}
    assert {(label.source, label.method) for label in labels.values()} == {("file", name)}
    assert labels[2].confidence == (None if name == "mine.json" else "high")
    assert counts.by_state == {"insufficient": len(FEATURES) - 2, "labelled": 2}


def test_a_label_that_may_not_be_shown_is_counted(emulated_sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"1": "<b>bold</b>", "3": "fine"}')
    assert take(tmp_path / "mine.json", emulated_sweep).by_state["invalid"] == 1
    frame = pl.read_parquet(tmp_path / "s.parquet").filter(pl.col("state") == "invalid")
    assert frame["feature"].to_list() == [1]
    assert "it contains markup" in frame["reason"][0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("mine.json", '{"999": "x"}', "names feature 999; this SAE has features 0 to 15"),
        ("mine.csv", "feature,label\n0,a\n0,b\n", "names feature 0 twice"),
        ("mine.csv", "index,name\n0,a\n", "lacks the columns feature, label; it has index, name"),
        ("mine.csv", "feature,label\nzero,a\n", "label 1: feature is 'zero'; a number from 0 is expected"),
        ("mine.parquet", "no parquet", "is not a readable Parquet file of labels"),
        ("mine.json", "[1]", "must map feature indices to labels"),
    ],
)
def test_another_file_is_refused_by_what_is_wrong(
    name: str, content: str, words: str, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ArtefactError, match=words):
        take(tmp_path / name, emulated_sweep)
