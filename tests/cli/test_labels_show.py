"""`labels show --features`: all that is known about a feature, for people and for programs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_results import D_SAE, HOSTILE, LABELS, PAIRING, build_results, on_a_terminal
from tiny_sweep import make_fingerprint

from neuroscope.cli import main
from neuroscope.cli.terminal import width


@pytest.fixture
def page(results: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Prints the page of some features."""

    def page(*words: str) -> str:
        assert main(["labels", "show", *words]) == 0
        return capsys.readouterr().out

    return page


def test_a_page_tells_the_label_its_source_and_its_scores(page: Any) -> None:
    lines = page("--features", "0").splitlines()
    assert lines[0] == "feature 0  animals that people keep"
    assert "claude (claude-haiku, examples), confidence high" in lines[1]
    assert "rule 0.90 (0.80 to 0.95), 9 of 10 active and 9 of 10 silent windows told" in lines[2]
    assert "rule near miss 0.70 (0.60 to 0.80), 7 of 10 active" in lines[3]


def test_a_page_tells_the_other_labels_and_only_the_first_of_a_source_has_its_score(page: Any) -> None:
    text = " ".join(page("--features", "0").split())
    assert "cats and dogs [neuronpedia (gpt-4o-mini, oai_token-act-pair); rule 0.65 (0.50 to 0.80)]" in text
    assert "pets [neuronpedia (gemini-2.0-flash, np_max-act-logits); not scored]" in text
    assert '" cat" [tokens (distinctive tokens), confidence medium; rule 0.55' in text


def test_a_page_tells_how_a_feature_fires_on_each_kind_of_text(page: Any) -> None:
    text = page("--features", "0")
    header = text.index("stratum  firing_rate  mean  max  tokens")
    assert [line.split() for line in text[header:].splitlines()[1:3]] == [
        ["all", "0.5", "2", "3", "4"],
        ["chat", "0.5", "2", "3", "4"],
    ]


def test_tokens_and_examples_show_control_characters_and_mark_the_token(page: Any) -> None:
    text = page("--features", "0")
    assert "promoted     ␣cat  ␛[2J" in text
    assert "suppressed   ␣the" in text
    assert "9.5  chat   the cat the« cat» sat␛[2J↵" in text
    assert "chat  «↵»" in text


def test_a_dead_feature_says_so(page: Any) -> None:
    text = page("--features", str(D_SAE - 1))
    assert "never fired in 4 tokens" in text
    assert "none: it is called by its number" in text
    assert "firing_rate" not in text


def test_a_page_tells_why_a_labeler_gave_no_label(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {7: {"claude": ("refused", "it said\x1b[2J no"), "tokens": ("labelled", None)}}
    monkeypatch.setattr("neuroscope.store.Results.label_states", lambda results: states)
    text = page("--features", "7")
    assert "labelers     claude: refused (it said␛[2J no)\n" in text
    assert "labelled" not in text
    (record,) = json.loads(page("--features", "7", "--json"))
    assert record["labelers"] == [
        {"source": "claude", "state": "refused", "reason": "it said\x1b[2J no"},
        {"source": "tokens", "state": "labelled", "reason": None},
    ]


def test_nothing_that_steers_a_terminal_is_printed(page: Any) -> None:
    printed = page("--features", "0,1,2,3,7") + page() + page("--search", "evil")
    assert all(character.isprintable() or character == "\n" for character in printed)
    assert "<U+202E>evil" in printed


@pytest.mark.parametrize("columns", [40, 60, 100, 200])
def test_a_page_fits_the_width(page: Any, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = page("--features", "0,1,3,7").splitlines()
    assert max(map(width, lines)) <= columns
    assert any("«é😀»" in line for line in lines), "the token stays, whatever is cut around it"


def test_json_has_what_the_page_has(page: Any) -> None:
    first, dead = json.loads(page("--features", "0,7", "--json"))
    assert (first["feature"], first["label"], first["source"]) == (0, "animals that people keep", "claude")
    assert (first["model"], first["method"], first["confidence"]) == ("claude-haiku", "examples", "high")
    assert [score["method"] for score in first["scores"]] == ["rule", "rule_near_miss"]
    assert [(row["source"], row["label"], len(row["scores"])) for row in first["other_labels"]] == [
        ("neuronpedia", "cats and dogs", 1),
        ("neuronpedia", "pets", 0),
        ("tokens", '" cat"', 1),
    ]
    assert [row["token"] for row in first["promoted"]] == [" cat", "\x1b[2J"]
    assert [row["token"] for row in first["examples"]] == [" cat", "é😀", "\n"]
    assert {row["stratum"]: row["max_activation"] for row in first["strata"]} == {"all": 3.0, "chat": 3.0}
    assert (dead["label"], dead["source"], dead["n_fired"], dead["n_tokens"]) == ("feature_7", None, 0, 4)
    assert dead["examples"] == dead["other_labels"] == dead["scores"] == []


def test_the_number_of_examples_can_be_chosen(page: Any) -> None:
    (record,) = json.loads(page("--features", "0", "--examples", "1", "--json"))
    assert [row["activation"] for row in record["examples"]] == [9.5]


def test_the_table_is_as_it_was(page: Any) -> None:
    header, *lines = page().splitlines()
    assert header.split() == ["feature", "label", "source", "confidence", "balanced_accuracy"]
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3"]


# --- colour


SHOWN = ("labels", "show", "--features", "0")


def test_a_terminal_gets_colour_unless_it_is_forbidden(results: Path) -> None:
    folder = results.parents[2]
    coloured = on_a_terminal(folder, *SHOWN)
    assert "the\x1b[30m\x1b[43m cat\x1b[0m sat␛[2J" in coloured
    assert "«" not in coloured
    for forbidden in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_a_terminal(folder, *SHOWN, **forbidden)
        assert "\x1b" not in plain
        assert "the« cat» sat" in plain


# --- results that are not there or not ours


def test_results_without_labels_name_the_command_that_makes_some(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_results(folder, labels=(), scores=None)
    assert main(["labels", "show"]) == 1
    told = capsys.readouterr().err
    assert "statistics and no labels. Make them with `neuroscope labels generate --pairing small`." in told
    assert main(["labels", "show", "--features", "0"]) == 0
    assert "feature 0  feature_0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer": 5}, "layer: made with 5, in use is 1"),
        ({"model": "hf://someone/else"}, "model: made with hf://someone/else"),
        ({"sae": "hf://someone/an-sae/other.npz"}, "SAE source: made with hf://someone/an-sae/other.npz"),
    ],
)
@pytest.mark.parametrize("command", [["show"], ["show", "--features", "0"]])
def test_results_about_something_else_are_refused_by_name(
    command: list[str],
    change: dict[str, Any],
    words: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    same = {"model": "hf://someone/a-model", "sae": "hf://someone/an-sae/params.npz", "layer": 1}
    build_results(folder, fingerprint=make_fingerprint(**{**same, "d_sae": D_SAE, **change}))
    assert main(["labels", *command]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Give the flags it was made with" in captured.err


def test_the_flags_that_results_were_made_with_find_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_fingerprint(
        model="hf://someone/a-model", sae="hf://someone/an-sae/other.npz", layer=1, d_sae=D_SAE
    )
    build_results(folder, fingerprint=other)
    assert main(["labels", "show", "--pairing", PAIRING, "--sae-path", "other.npz"]) == 0
    assert "animals that people keep" in capsys.readouterr().out


def test_an_sae_that_was_moved_is_still_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "here.npz").write_bytes(b"weights")
    for known, code in (("0" * 64, 1), (hashlib.sha256(b"weights").hexdigest(), 0)):
        made = make_fingerprint(
            model="hf://someone/a-model", sae="/elsewhere/sae.npz", sae_sha256=known, layer=1, d_sae=D_SAE
        )
        build_results(folder, fingerprint=made)
        assert main(["labels", "show", "--sae", str(folder / "here.npz")]) == code
    capsys.readouterr()


def test_a_feature_beyond_the_sae_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "show", "--features", f"0,{D_SAE}"]) == 1
    assert f"no feature {D_SAE}: this SAE has features 0 to {D_SAE - 1}" in capsys.readouterr().err


def test_missing_results_name_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "show", "--features", "0"]) == 1
    told = capsys.readouterr().err
    assert re.search(r"no results database at .*results\.duckdb\. Make it with `.*snakemake .*labels`", told)


def test_the_fixture_is_hostile() -> None:
    """So that the tests above can fail."""
    assert HOSTILE in [label.label for label in LABELS]
    assert not HOSTILE.isprintable()
