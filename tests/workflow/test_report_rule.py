"""The rule `report` on a finished run: the page and its plots, when they are drawn anew, and Snakemake's own report."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from fakes.checkout import PAIRING, Checkout
from fakes.tiny import D_SAE

from neuroscope.cli import main

PLOTS = {"firing-rates", "active-features", "activations", "label-scores", "coverage", "drift"}


@pytest.fixture(scope="module")
def drawn(finished: Checkout) -> Checkout:
    """The finished checkout with its report."""
    finished.snakemake("report")
    return finished


def test_the_page_and_six_plots_are_about_the_run(drawn: Checkout) -> None:
    folder = drawn.results / "report"
    assert {path.stem for path in folder.glob("*.svg")} == PLOTS
    told = json.loads((folder / "report.json").read_text())
    swept = json.loads((drawn.results / "sweep.json").read_text())["strata"]
    assert {of["name"]: (of["tokens"], of["documents"]) for of in told["strata"]} == {
        name: (of["tokens"], of["documents"]) for name, of in swept.items()
    }
    assert told["strata"][-1]["l0"] == pytest.approx(swept["all"]["mean_l0"])
    assert told["firing"]["features"] == D_SAE
    assert told["firing"]["dead"] == swept["all"]["silent_features"]
    assert [key for key, value in told.items() if isinstance(value, dict) and "missing" in value] == []
    page = (drawn.results / "report.html").read_text()
    assert page.count("<svg") == 6
    assert f"http://127.0.0.1:8081/feature/{told['notable'][0]['features'][0]['feature']}" in page
    assert str(drawn.root) not in page


def test_it_is_drawn_once_and_again_when_what_it_shows_has_changed(drawn: Checkout, tmp_path: Path) -> None:
    assert drawn.jobs("report") == drawn.jobs("all") == set()
    assert drawn.jobs("labels") == set()

    def changed(**sections: object) -> set[str]:
        path = tmp_path / "change.yaml"
        path.write_text(yaml.safe_dump(sections))
        return drawn.jobs("report", "--configfile", str(path))

    assert changed(serve={"features_port": 9001}) == {"report"}
    assert changed(serve={"port": 9000}) == set()
    assert changed(labels={"min_score": 0.9}) == {"results", "report"}
    verification = drawn.results / "verification.json"
    had = verification.exists()
    if not had:
        verification.write_text("{}")
        assert drawn.jobs("report") == {"report"}, "and nobody tests the numbers anew"
        verification.unlink()


def test_snakemakes_own_report_holds_the_plots_with_their_captions(drawn: Checkout, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    said = drawn.snakemake("--report", str(out), "--", "report")
    assert "Report created" in said.stderr
    text = out.read_text(encoding="utf-8")
    for name in PLOTS:
        assert f"{name}.svg" in text
    assert "report.html" in text
    for words in ("Dead features never fired", "0.5 is chance", "How often and how strongly each feature"):
        assert words in text
    categories = {"Features", "Tokens", "Labels", "Summary"}
    assert categories <= set(re.findall(r'"(\w+)"', text))


def test_the_command_draws_what_there_is_and_says_where(
    drawn: Checkout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in drawn.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(drawn.root)
    plot = drawn.results / "report/drift.svg"
    before = plot.read_bytes()
    plot.unlink()
    words = ["report", "--pairing", PAIRING, "--cores", "1"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["page"] == str(drawn.results / "report.html")
    assert {Path(path).stem for path in told["plots"]} == PLOTS
    assert told["firing"]["features"] == D_SAE
    assert plot.read_bytes() == before
    shutil.rmtree(drawn.results / "report")
    assert main(words) == 0
    said = capfd.readouterr()
    assert re.search(
        rf"^page +{re.escape(str(drawn.results / 'report.html'))}$", said.out, flags=re.MULTILINE
    )
    assert "Whether the numbers are right" in said.err or "Numbers are off" in said.err
    assert plot.read_bytes() == before
