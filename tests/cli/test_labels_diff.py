"""`labels diff`: where two sources, or two files, label features differently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroscope.cli import main


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["labels", *words]) == 0
    return capsys.readouterr().out


def test_two_sources_are_compared(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "diff", "claude", "tokens", "--json"))
    rows = found.pop("rows")
    assert found == {
        "a": "claude",
        "b": "tokens",
        "only_a": 0,
        "only_b": 0,
        "same": 1,
        "different": 2,
        "both_scored": 2,
        "mean_score_a": pytest.approx(0.85),
        "mean_score_b": pytest.approx(0.525),
    }
    assert [(row["feature"], row["difference"]) for row in rows] == [
        (0, pytest.approx(-0.35)),
        (1, pytest.approx(-0.3)),
    ]
    assert (rows[0]["label_a"], rows[0]["label_b"]) == ("animals that people keep", '" cat"')


def test_features_that_one_side_lacks_are_counted(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "diff", "neuronpedia", "claude", "--json"))
    assert (found["only_a"], found["only_b"], found["different"]) == (1, 2, 1)
    assert (found["mean_score_a"], found["mean_score_b"], found["both_scored"]) == (0.65, 0.9, 1)


def test_two_files_are_compared_without_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.json").write_text(json.dumps({"1": "cats", "2": "dogs", "3": "birds", "9": "fish"}))
    rows = [
        {"feature": 1, "label": "cats", "score": 0.9},
        {"feature": 2, "label": "wolves", "score": 0.5},
        {"feature": 3, "label": "ducks"},
    ]
    Path("b.json").write_text(json.dumps(rows))
    found = json.loads(told(capsys, "diff", "a.json", "b.json", "--json"))
    assert (found["only_a"], found["only_b"], found["same"], found["different"]) == (1, 0, 1, 2)
    assert (found["both_scored"], found["mean_score_a"]) == (0, None)
    assert [(row["feature"], row["score_b"], row["difference"]) for row in found["rows"]] == [
        (2, 0.5, None),
        (3, None, None),
    ]


def test_rows_come_by_the_difference_of_scores_then_those_without(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {1: (0.5, 0.6), 2: (None, 0.9), 3: (0.9, 0.5), 4: (0.5, 0.7), 5: (0.6, 0.6)}
    for place, name in enumerate(("a", "b")):
        rows = [{"feature": f, "label": f"{name}{f}", "score": pair[place]} for f, pair in scores.items()]
        Path(f"{name}.json").write_text(json.dumps(rows))
    found = json.loads(told(capsys, "diff", "a.json", "b.json", "--json"))
    assert [row["feature"] for row in found["rows"]] == [3, 4, 1, 5, 2]
    assert found["different"] == 5
    assert len(json.loads(told(capsys, "diff", "a.json", "b.json", "--limit", "2", "--json"))["rows"]) == 2


def test_a_source_can_be_compared_with_an_export_of_it(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "export", "--source", "claude", "--format", "csv", "--out", "claude")
    Path("claude").rename("claude.csv")
    found = json.loads(told(capsys, "diff", "claude", "claude.csv", "--json"))
    assert (found["same"], found["different"], found["only_a"], found["only_b"]) == (3, 0, 0, 0)
    assert found["mean_score_a"] == found["mean_score_b"]


def test_the_table_of_differences_fits_and_steers_nothing(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = told(capsys, "diff", "claude", "tokens")
    assert all(character.isprintable() or character == "\n" for character in text)
    assert max(map(len, text.splitlines())) <= 80
    assert "different     2" in text
    header = next(line for line in text.splitlines() if line.startswith("feature"))
    assert header.split() == ["feature", "label_a", "score_a", "label_b", "score_b", "difference"]


def test_a_name_that_is_neither_source_nor_file_is_refused(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["labels", "diff", "claude", "gpt"]) == 1
    told = capsys.readouterr().err
    assert "Choose one of: claude (3), neuronpedia (2), tokens (3). There is no file gpt either." in told
