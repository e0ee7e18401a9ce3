"""`neuroscope report` where the pipeline has not finished: statistics alone, nothing at all, another SAE's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_results import D_SAE, PAIRING, build_results

from neuroscope.cli import main
from neuroscope.cli import report as command


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What the pipeline would be asked for."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def run_target(target: str, overrides: dict[str, Any], **how: Any) -> None:
        asked.append((target, how))

    monkeypatch.setattr(command, "run_target", run_target)
    return asked


def test_a_calibration_is_drawn_without_making_labels(
    folder: Path, run: list[tuple[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = build_results(folder, labels=(), scores=None)
    assert main(["report", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(path.with_name("report.html"))
    assert told["scores"] == {"missing": "No label has a score."}
    assert told["firing"]["features"] == D_SAE
    assert len(told["plots"]) == 6
    assert run == [], "a run of the pipeline would have the labels made"
    assert main(["report"]) == 0
    said = capsys.readouterr()
    assert "dead features" in said.out
    assert f"NEUROSCOPE_PAIRING={PAIRING} neuroscope labels generate" in said.err


def test_results_with_labels_are_drawn_by_the_pipeline_and_nothing_is_measured(
    results: Path, run: list[tuple[str, dict[str, Any]]]
) -> None:
    (results.parent / "report").mkdir()
    (results.parent / "report/report.json").write_text(
        '{"strata": [{"tokens": 4, "l0": 2.0, "fvu": null}], "firing": {"missing": "x"}, "scores": {}, '
        '"sources": [], "warnings": []}'
    )
    assert main(["report", "--cores", "1"]) == 0
    assert run == [("report", {"cores": 1, "anew": True, "by_time": True})]


def test_without_results_the_next_command_is_named(
    folder: Path, run: list[tuple[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report"]) == 1
    said = capsys.readouterr().err
    assert "There is no results database at" in said
    assert f"NEUROSCOPE_PAIRING={PAIRING} snakemake" in said
    assert run == []


def test_results_of_another_sae_are_refused(
    results: Path, run: list[tuple[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--sae", "someone/another"]) == 1
    assert "is about something else" in capsys.readouterr().err
    assert run == []
