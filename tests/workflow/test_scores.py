"""`neuroscope labels score` on a finished run: by rules, and in words by a service on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes.checkout import PAIRING, Checkout
from fakes.claude import FakeClaude
from fakes.tiny import D_SAE

from neuroscope import settings
from neuroscope.cli import main
from neuroscope.stages.labels import token_text

MODEL = "claude-haiku-4-5-20251001"
SCORE = ["labels", "score", "--pairing", PAIRING, "--cores", "1"]


@pytest.fixture
def inside(finished: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """The finished checkout as the working directory."""
    for name, value in finished.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.chdir(finished.root)
    return finished


@pytest.fixture
def claude(inside: Checkout, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClaude]:
    with FakeClaude() as served:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", served.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secretsecret")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield served
    (inside.results / "labels/scores.ledger.jsonl").unlink(missing_ok=True)


class Truth:
    """Where each feature fires, by the text of a window: what a judge who knew would say."""

    def __init__(self, checkout: Checkout) -> None:
        text = token_text(settings.load(PAIRING, config=checkout.root / "config/config.yaml"))
        self._text = lambda window: "".join(text(i).replace("▁", " ") for i in window if i >= 0)
        examples = pl.read_parquet(checkout.results / "examples.parquet")
        pool = pl.read_parquet(checkout.results / "pool.parquet").select("window", "features")
        self.firing: dict[str, set[int]] = {}
        for window, features in pool.iter_rows():
            self.firing.setdefault(self._text(window), set()).update(features)
        for feature, window in examples.select("feature", "window").iter_rows():
            self.firing.setdefault(self._text(window), set()).add(feature)

    def says(self, body: dict[str, Any]) -> str:
        """The label names the feature that is looked for."""
        lines = body["messages"][0]["content"].splitlines()
        feature = int(json.loads(next(line[7:] for line in lines if line.startswith("Label: "))).split()[-1])
        windows = [json.loads(line.partition(" ")[2]) for line in lines if line[:1].isdigit()]
        return json.dumps({"verdicts": [int(feature in self.firing[window]) for window in windows]})


def scored(words: list[str], capfd: pytest.CaptureFixture[str]) -> Any:
    assert main([*SCORE, "--json", *words]) == 0
    return json.loads(capfd.readouterr().out)


def write_labels(path: Path, texts: dict[int, str]) -> Path:
    path.write_text(json.dumps({str(feature): text for feature, text in texts.items()}))
    return path


def test_scores_are_told_by_source_and_method(inside: Checkout, capfd: pytest.CaptureFixture[str]) -> None:
    rows = scored([], capfd)
    assert [(row["source"], row["method"]) for row in rows] == [
        ("tokens", "rule"),
        ("tokens", "rule_near_miss"),
    ]
    table = pl.read_parquet(inside.results / "scores.parquet").filter(pl.col("method") == "rule")
    known = table["balanced_accuracy"].drop_nulls()
    assert rows[0]["labels"] == rows[0]["scored"] + rows[0]["failed"] == len(table)
    assert rows[0]["scored"] == len(known) > 0
    assert rows[0]["mean_balanced_accuracy"] == pytest.approx(known.mean())
    assert rows[0]["low"] < rows[0]["mean_balanced_accuracy"] < rows[0]["high"]
    assert rows[0]["under_min_score"] == (known < 0.6).sum()


def test_labels_of_a_file_that_are_the_results_own_are_judged_by_their_rules(
    inside: Checkout, capfd: pytest.CaptureFixture[str]
) -> None:
    told = scored(["--labels", str(inside.results / "labels.json")], capfd)
    own = {
        row["feature"]: row
        for row in pl.read_parquet(inside.results / "scores.parquet").to_dicts()
        if row["method"] == "rule"
    }
    rules = [row for row in told["labels"] if row["method"] == "rule"]
    assert len(rules) == len(own)
    assert all(row["balanced_accuracy"] == own[row["feature"]]["balanced_accuracy"] for row in rules)


def test_a_file_with_labels_of_several_sources_has_figures_of_each(
    inside: Checkout, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    known = pl.read_parquet(inside.results / "labels/tokens.parquet").select("feature", "source", "label")
    words = known.with_columns(source=pl.lit("mine"), label=pl.lit("in words"))
    pl.concat([words, known]).write_csv(tmp_path / "both.csv")
    figures = {
        row["source"]: row for row in scored(["--labels", str(tmp_path / "both.csv")], capfd)["figures"]
    }
    assert {source: row["labels"] for source, row in figures.items()} == {
        "mine": len(known),
        "tokens": len(known),
    }
    assert figures["mine"]["scored"] == 0 < figures["tokens"]["scored"]


def test_labels_of_others_in_words_are_judged_by_a_language_model_and_paid_for_once(
    inside: Checkout, claude: FakeClaude, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    claude.answer = Truth(inside).says
    mine = write_labels(tmp_path / "mine.json", {f: f"known as {f}" for f in range(D_SAE)})
    told = scored(["--labels", str(mine), "--scorer", MODEL], capfd)
    figures = {row["method"]: row for row in told["figures"]}
    assert figures["detection"]["labels"] == D_SAE
    assert figures["detection"]["scored"] > 5
    assert figures["detection"]["mean_balanced_accuracy"] > 0.9, "the same words may stand in two contexts"
    assert len({row["feature"] for row in told["labels"]}) == D_SAE
    paid = sum(claude.paid.values())
    assert paid == figures["detection"]["scored"]
    assert scored(["--labels", str(mine), "--scorer", MODEL], capfd) == told
    assert sum(claude.paid.values()) == paid
    assert scored(["--labels", str(mine), "--scorer", MODEL, "--dry-run"], capfd)["settled"] == paid


def test_labels_of_other_features_judged_perfectly_score_about_a_half(
    inside: Checkout, claude: FakeClaude, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    claude.answer = Truth(inside).says
    strangers = write_labels(tmp_path / "s.json", {f: f"known as {(f + 7) % D_SAE}" for f in range(D_SAE)})
    told = scored(["--labels", str(strangers), "--scorer", MODEL], capfd)
    figures = {row["method"]: row for row in told["figures"]}
    assert figures["detection"]["mean_balanced_accuracy"] == pytest.approx(0.5, abs=0.12)


def test_without_a_judge_labels_in_words_are_refused_and_nothing_is_asked(
    inside: Checkout, claude: FakeClaude, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = write_labels(tmp_path / "mine.json", {1: "words"})
    assert main([*SCORE, "--labels", str(mine)]) == 1
    assert "Name one with --scorer" in capfd.readouterr().err
    beyond = write_labels(tmp_path / "beyond.json", {D_SAE: "words"})
    assert main([*SCORE, "--labels", str(beyond), "--scorer", MODEL]) == 1
    assert f"this SAE has features 0 to {D_SAE - 1}" in capfd.readouterr().err
    assert not claude.asked


def test_a_dry_run_tells_calls_and_dollars_and_pays_nothing(
    inside: Checkout, claude: FakeClaude, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = write_labels(tmp_path / "mine.json", dict.fromkeys(range(D_SAE), "words"))
    told = scored(["--labels", str(mine), "--scorer", MODEL, "--dry-run"], capfd)
    assert told["calls"] > 5
    assert told["usd"] > 0
    assert told["in_words"] == D_SAE
    assert not claude.paid
    assert scored(["--dry-run"], capfd)["in_words"] == 0
