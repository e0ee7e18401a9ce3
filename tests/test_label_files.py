"""Files that labels are written to for other programs, and read back from."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from neuroscope import label_export
from neuroscope.errors import ArtefactError
from neuroscope.label_export import Scored, read_scored
from neuroscope.label_files import csv_text
from neuroscope.labels import Label, read_labels

DANGEROUS = ("=1+1", "+1", "-1", "@sum", "\tx", "\rx", "\nx", "＝1")
AWKWARD = (*DANGEROUS, "'=1", "''", "'", "'s possessive", 'a "quoted", label', "two\nlines", "猫", " =1", "")
LABELS = [
    Scored(Label(7, "claude", "French cities", "high", "claude-haiku", "examples", "2026-01-01"), 0.9),
    Scored(Label(7, "neuronpedia", "places"), None),
    *(Scored(Label(number, "=tokens", text, "low"), 0.5) for number, text in enumerate(AWKWARD, 10) if text),
]

Write = Callable[[Path], object]
FORMATS: dict[str, Write] = {
    "labels.json": lambda path: label_export.write_text(path, label_export.as_json(LABELS)),
    "labels.csv": lambda path: label_export.write_text(path, label_export.as_csv(LABELS)),
    "labels.parquet": lambda path: label_export.write_parquet(path, LABELS),
}


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_back_with_source_and_score(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path / name)
    assert read_scored(tmp_path / name) == LABELS
    assert list(read_labels(tmp_path / name).labels) == [scored.label for scored in LABELS]


@pytest.mark.parametrize("name", FORMATS)
def test_no_labels_are_written_and_read_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_label_files.LABELS", [])
    FORMATS[name](tmp_path / name)
    assert read_scored(tmp_path / name) == []


@pytest.mark.parametrize("cell", AWKWARD)
def test_no_cell_of_the_csv_is_computed_by_a_spreadsheet(cell: str) -> None:
    text = csv_text([{"a": cell, "n": -1.5}], ("a", "n"))
    _, (written, figure) = csv.reader(io.StringIO(text, newline=""))
    assert not any(written.startswith(text[0]) for text in DANGEROUS)
    assert written in (cell, f"'{cell}")
    assert figure == "-1.5", "a number stays one"


def test_rows_of_neuronpedia_have_the_fields_of_its_bucket(tmp_path: Path) -> None:
    path = tmp_path / "batch-0.jsonl.gz"
    label_export.write_text(
        path, label_export.as_neuronpedia(LABELS[:3], "gemma-2-2b", "20-gemmascope-res-16k")
    )
    first, second, third = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
    assert first == {
        "modelId": "gemma-2-2b",
        "layer": "20-gemmascope-res-16k",
        "index": "7",
        "description": "French cities",
        "typeName": "examples",
        "explanationModelName": "claude-haiku",
        "createdAt": "2026-01-01",
        "source": "claude",
        "score": 0.9,
    }
    assert "score" not in second
    assert (second["typeName"], second["explanationModelName"]) == ("neuronpedia", "neuronpedia")
    assert (third["index"], third["description"]) == ("10", "=1+1")


def test_equal_labels_make_equal_compressed_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        label_export.write_text(tmp_path / name, "x" * 1000)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name, write in FORMATS.items():
        (tmp_path / name).write_text("old")
        with monkeypatch.context() as context:
            context.setattr("pathlib.Path.write_bytes", full_disk)
            context.setattr("polars.DataFrame.write_parquet", full_disk)
            with pytest.raises(OSError, match="No space left"):
                write(tmp_path / name)
        assert (tmp_path / name).read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(FORMATS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", "feature,text\n1,a\n", "lacks the columns label; it has feature, text"),
        ("x.csv", "", "lacks the columns feature, label"),
        ("x.csv", "feature,label\none,a\n", "label 1: feature is 'one'; a number from 0 is expected"),
        ("x.csv", "feature,label\n1,a\n2\n", "label 2: label is None; a text is expected"),
        ("x.csv", "feature,label,score\n1,a,good\n", "label 1: score is 'good'; a number from 0 to 1"),
        ("x.csv", "feature,label,score\n1,a,90\n", "score is 90.0; a number from 0 to 1"),
        ("x.csv", b"feature,label\n1,\xff\n", "not a readable CSV"),
        ("x.json", '[{"feature": "1", "label": "a"}]', "label 1: feature is '1'; a number from 0"),
        ("x.json", '[{"feature": 1, "label": "a"}, {"feature": -2, "label": "b"}]', "label 2: feature is -2"),
        ("x.json", '[{"label": "a"}]', "label 1: feature is None"),
        ("x.json", '[{"feature": 1}]', "label 1: label is None; a text"),
        ("x.json", '[{"feature": true, "label": "a"}]', "feature is True"),
        ("x.json", '[{"feature": 1, "label": "a", "model": 3}]', "model is 3; a text"),
    ],
)
def test_a_row_that_is_no_label_is_named(name: str, content: str | bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ArtefactError) as caught:
        read_labels(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_row_of_parquet_without_a_label_is_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"feature": [1, 2], "source": ["a", "a"], "label": ["x", None]})
    frame.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(ArtefactError, match="label 2: label is None"):
        read_labels(tmp_path / "x.parquet")


def test_a_csv_that_a_spreadsheet_wrote_is_read(tmp_path: Path) -> None:
    """With a byte order mark, its own line ends, fewer columns and no source."""
    (tmp_path / "mine.csv").write_bytes("\ufefffeature,label\r\n3,'=x\r\n".encode())
    assert read_labels(tmp_path / "mine.csv").labels == (Label(3, "mine", "=x"),)
