"""`labels export`: the labels of the results for other programs."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from small_results import HOSTILE, LABELS, PAIRING, build_results, on_a_terminal

from neuroscope.cli import main
from neuroscope.labels import read_labels

SHOWN = [(0, "claude", 0.9), (1, "claude", 0.8), (2, "claude", None), (3, "neuronpedia", None)]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["labels", *words]) == 0
    return capsys.readouterr().out


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    score = row["score"]
    return int(row["feature"]), row["source"], None if score in (None, "") else float(score)


def test_every_format_carries_label_source_and_score(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(told(capsys, "export"))
    assert [key(row) for row in rows] == SHOWN
    assert rows[0]["label"] == "animals that people keep"
    rows = list(csv.DictReader(io.StringIO(told(capsys, "export", "--format", "csv"))))
    assert [key(row) for row in rows] == SHOWN
    told(capsys, "export", "--format", "parquet", "--out", "x.parquet")
    assert [key(row) for row in pl.read_parquet("x.parquet").to_dicts()] == SHOWN
    lines = told(capsys, "export", "--format", "neuronpedia").splitlines()
    rows = [{"feature": row["index"], "score": None} | row for row in map(json.loads, lines)]
    assert [key(row) for row in rows] == SHOWN
    assert {(row["modelId"], row["layer"]) for row in rows} == {("a-model", "1-res-8")}
    assert all(isinstance(row["index"], str) for row in rows)


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_all_sources_come_back_from_a_file(
    form: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(f"deep/folder/labels.{form}")
    assert main(["labels", "export", "--all-sources", "--format", form, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{len(LABELS)} labels in {out}\n"
    found = read_labels(out).labels
    assert set(found) == set(LABELS)
    assert [label.feature for label in found] == sorted(label.feature for label in LABELS)


def test_one_source_is_exported_and_only_its_first_label_has_the_score(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(told(capsys, "export", "--source", "neuronpedia"))
    assert [(row["feature"], row["label"], row["score"]) for row in rows] == [
        (0, "cats and dogs", 0.65),
        (0, "pets", None),
        (3, "猫, 'cat' in Japanese", None),
    ]


def test_a_name_that_ends_in_gz_is_compressed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "export", "--format", "neuronpedia", "--out", "batch-0.jsonl.gz")
    lines = gzip.decompress(Path("batch-0.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(line)["index"] for line in lines] == ["0", "1", "2", "3"]


def test_a_formula_is_text_in_the_csv(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "2,claude,'=1+1,medium" in told(capsys, "export", "--format", "csv")


@pytest.mark.parametrize("form", ["csv", "json", "neuronpedia"])
def test_an_export_to_a_terminal_does_not_steer_it(form: str, folder: Path, results: Path) -> None:
    words = ["labels", "export", "--source", "tokens", "--format", form]
    text = on_a_terminal(folder, *words).replace("\r\n", "\n")
    assert "evil" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def test_a_file_gets_the_label_as_it_is(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "export", "--source", "tokens", "--format", "csv", "--out", "x.csv")
    assert HOSTILE in [label.label for label in read_labels(Path("x.csv")).labels]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "parquet"], "name its file with --out"),
        (["--format", "parquet", "--out", "x.parquet.gz"], "leave .gz out of the name"),
        (["--source", "claude", "--all-sources"], "exclude each other"),
        (["--format", "xml"], "'xml' is not one of"),
        (["--out", "config"], "is a directory"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    words: list[str], message: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["labels", "export", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_source_names_the_known_ones(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "export", "--source", "gpt"]) == 1
    assert (
        "no labels of 'gpt'. Choose one of: claude (3), neuronpedia (2), tokens (3)."
        in capsys.readouterr().err
    )


def test_a_file_that_cannot_be_written_is_one_line(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results.parent / "file").touch()
    assert main(["labels", "export", "--out", str(results.parent / "file/x.json")]) == 1
    captured = capsys.readouterr()
    assert "cannot be written" in captured.err
    assert "Name another file with --out." in captured.err


def test_a_pairing_without_names_on_neuronpedia_invents_none(
    results: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / f"config/pairings/{PAIRING}.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "neuronpedia": None}))
    assert main(["labels", "export", "--format", "neuronpedia", "--out", "x.jsonl"]) == 1
    assert (
        "neuronpedia: {model_id: ..., sae_id: ...} to config/pairings/small.yaml" in capsys.readouterr().err
    )
    assert not Path("x.jsonl").exists()


@pytest.mark.parametrize("words", [["export"], ["diff", "claude", "tokens"]])
def test_results_of_a_calibration_name_the_command_that_labels(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_results(folder, labels=(), scores=None)
    assert main(["labels", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "neuroscope labels generate --pairing small" in captured.err


def test_scores_of_a_file_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.json").write_text(
        json.dumps([{"feature": 4, "source": "claude", "label": "cats", "score": 0.75}])
    )
    header, line = told(capsys, "show", "--labels", "x.json").splitlines()
    assert header.split()[-1] == "balanced_accuracy"
    assert line.split() == ["4", "cats", "claude", "-", "0.75"]
