"""Commands that show results, and the SQL of the pages, on a finished run."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest
from docs.pages import blocks
from fakes.checkout import PAIRING, Checkout
from fakes.tiny import D_SAE

from neuroscope.cli import main

QUERIES = list(dict.fromkeys(block.text for block in blocks("sql")))


@pytest.fixture
def inside(finished: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """The finished checkout as the working directory."""
    for name, value in finished.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    monkeypatch.chdir(finished.root)
    return finished


def shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_labels_show_those_that_are_asked_for(inside: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown(["labels", "show", "--features", "3,1"], capsys)
    assert [row["feature"] for row in rows] == [3, 1]
    assert {row["source"] for row in rows} <= {"tokens", None}


def test_calibration_shows_rates_in_falling_order(
    inside: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shown(["calibrate", "show", "--top", "5", "--stratum", "code"], capsys)
    rates = [row["firing_rate"] for row in rows]
    assert len(rates) == 5
    assert rates == sorted(rates, reverse=True)
    by_file = shown(
        ["calibrate", "show", "--stats", str(inside.results / "stats.json"), "--top", "64"], capsys
    )
    assert len(by_file) == D_SAE


def test_an_unknown_stratum_names_the_known_ones(
    inside: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "show", "--stratum", "poetry"]) == 1
    assert "all, chat, code, conversation, encyclopedia" in capsys.readouterr().err


def test_the_corpus_is_shown_by_source(inside: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown(["corpus", "show"], capsys)
    assert [row["name"] for row in rows] == ["encyclopedia", "code", "conversation", "chat"]


@pytest.mark.parametrize("number", range(5))
def test_a_query_of_the_readme_runs(number: int, finished: Checkout) -> None:
    with duckdb.connect(str(finished.results / "results.duckdb"), read_only=True) as connection:
        assert connection.sql(QUERIES[number]).columns


def test_the_readme_has_five_queries() -> None:
    assert len(QUERIES) == 5


def test_a_feature_that_the_sae_does_not_have_is_refused(
    inside: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["labels", "show", "--features", f"3,{D_SAE}"]) == 1
    assert f"no feature {D_SAE}: this SAE has features 0 to {D_SAE - 1}" in capsys.readouterr().err


def test_verify_says_what_is_off_and_ends_with_one(
    inside: Checkout, capfd: pytest.CaptureFixture[str]
) -> None:
    """The checkout's SAE is random: arithmetic, hook, cache and BOS are right, what it explains is not."""
    assert main(["calibrate", "show", "--pairing", PAIRING, "--strata"]) == 0
    assert f"Measure it with: NEUROSCOPE_PAIRING={PAIRING} neuroscope verify" in capfd.readouterr().err
    words = ["verify", "--pairing", PAIRING, "--cores", "1", "--tokens", "400"]
    assert main([*words, "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    verdicts = {check["name"]: check["verdict"] for check in found["checks"]}
    assert verdicts["fvu"] == "off"
    assert all(verdicts[name] == "ok" for name in ("encode", "hook", "cache", "bos"))
    assert set(found["input_norms"]) == {"none", "rms", "layer_norm", "constant_norm_rescale"}
    assert main(words) == 1
    output = capfd.readouterr()
    assert "none (in use)" in output.out
    assert "Off: " in output.err
    rows = shown(["calibrate", "show", "--pairing", PAIRING, "--strata"], capfd)
    assert {row["stratum"] for row in rows} == {"all", "chat", "code", "conversation", "encyclopedia"}
    assert all(row["mean_l0"] > 0 and row["fvu"] > 0.6 for row in rows)
