"""Labels: what may be one, which of several is shown, and the files they live in."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from neuroscope.errors import ArtefactError, LabelError
from neuroscope.labels import Label, LabelSet, load_labels, read_labels, validate

CLAUDE = Label(7, "claude", "French cities", "high", "claude-haiku", "examples", "2026-01-01T00:00:00+00:00")
NEURONPEDIA = Label(7, "neuronpedia", "places")
TOKENS = Label(9, "tokens", '"Paris"', "medium")


def test_generated_labels_override_neuronpedia(tmp_path: Path) -> None:
    LabelSet((Label(4, "neuronpedia", "noisy"), Label(5, "neuronpedia", "only here"))).to_json(
        tmp_path / "n.json"
    )
    LabelSet((Label(4, "claude", "greeting or salutation"),)).to_json(tmp_path / "own.json")
    paths = {"claude": tmp_path / "own.json", "neuronpedia": tmp_path / "n.json"}
    labels = load_labels(paths)
    assert labels.text(4) == "greeting or salutation"
    assert labels.by_feature[4].source == "claude"
    assert labels.text(5) == "only here"
    assert labels.text(6) == "feature_6"


def test_labels_json_has_the_original_shape(tmp_path: Path) -> None:
    LabelSet((TOKENS, CLAUDE, NEURONPEDIA)).to_json(tmp_path / "labels.json")
    assert json.loads((tmp_path / "labels.json").read_text()) == {"7": "French cities", "9": '"Paris"'}


def test_an_answer_of_the_labels_endpoint_is_accepted_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "downloaded.json"
    path.write_text(json.dumps({"sae_id": "x", "width": 2, "labels": {"1": "articles"}}))
    assert read_labels(path).labels == (Label(1, "downloaded", "articles"),)


def test_parquet_keeps_every_field_and_every_source(tmp_path: Path) -> None:
    labels = LabelSet((CLAUDE, NEURONPEDIA, TOKENS))
    labels.to_parquet(tmp_path / "labels.parquet")
    assert read_labels(tmp_path / "labels.parquet") == labels


def test_extra_columns_stand_beside_the_labels(tmp_path: Path) -> None:
    LabelSet((CLAUDE, TOKENS)).to_parquet(tmp_path / "labels.parquet", {"rule": [None, "{}"]})
    assert pl.read_parquet(tmp_path / "labels.parquet")["rule"].to_list() == [None, "{}"]
    assert read_labels(tmp_path / "labels.parquet").labels == (CLAUDE, TOKENS)


def test_an_empty_label_set_is_written_and_read(tmp_path: Path) -> None:
    LabelSet().to_parquet(tmp_path / "none.parquet")
    assert read_labels(tmp_path / "none.parquet").labels == ()


def test_best_follows_the_priority_not_the_order_of_labels() -> None:
    labels = LabelSet((NEURONPEDIA, CLAUDE))
    assert labels.best(("claude", "neuronpedia")).text(7) == "French cities"
    assert labels.best(("neuronpedia", "claude")).text(7) == "places"


def test_sources_outside_the_priority_are_not_shown() -> None:
    assert LabelSet((CLAUDE,)).best(("tokens",)).text(7) == "feature_7"


def test_a_low_score_flags_a_label() -> None:
    best = LabelSet((CLAUDE, NEURONPEDIA)).best(("claude", "neuronpedia"), {(7, "claude"): 0.55}, 0.6)
    assert best.by_feature[7].label == "French cities"
    assert best.by_feature[7].confidence == "low"


def test_a_low_label_gives_way_to_the_next_source_and_at_last_to_the_number() -> None:
    labels, scores = LabelSet((CLAUDE, NEURONPEDIA)), {(7, "claude"): 0.55}
    assert labels.best(("claude", "neuronpedia"), scores, 0.6, replace_low=True).text(7) == "places"
    scores[7, "neuronpedia"] = 0.5
    assert labels.best(("claude", "neuronpedia"), scores, 0.6, replace_low=True).text(7) == "feature_7"


def test_a_score_at_the_limit_is_not_low() -> None:
    best = LabelSet((CLAUDE,)).best(("claude",), {(7, "claude"): 0.6}, 0.6, replace_low=True)
    assert best.by_feature[7].confidence == "high"


def test_every_feature_of_an_sae_has_a_name() -> None:
    assert LabelSet((Label(1, "tokens", "numbers"),)).texts(3) == ["feature_0", "numbers", "feature_2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("  \n ", "it is empty"),
        ("a " * 16, r"it has 16 words \(at most 15\)"),
        ("x" * 121, r"it has 121 characters \(at most 120\)"),
        ("see https://evil.example", "it contains a URL"),
        ("go to www.evil.example", "it contains a URL"),
        ("javascript:alert(1)", "it contains a URL"),
        ("<b>names</b>", "it contains markup"),
        ("names <!-- hidden", "it contains markup"),
        ("&lt;script&gt;", "it contains markup"),
        ("**names** of cities", "it contains markup"),
        ("[names](here)", "it contains markup"),
        ("`names`", "it contains markup"),
        ("# names", "it contains markup"),
        ("names\x07", r"invisible character U\+0007"),
        ("names \u202egnp.exe", r"invisible character U\+202E"),
        ("na\u200bmes", r"invisible character U\+200B"),
        ("names\ud800", r"invisible character U\+D800"),
        ("\u3164", r"invisible character U\+3164"),
        ("\u2800\u2800", r"invisible character U\+2800"),
    ],
)
def test_a_label_that_could_do_harm_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LabelError, match=reason):
        validate(text)


@pytest.mark.parametrize(
    "text",
    [
        "a " * 14 + "a",
        "companies such as AT&T; research (R&D)",
        "x" * 120,
        "names of cities",
        "“say” — naïve 北京",
        'opening brackets "(", "<"',
        "x < y && z",
    ],
)
def test_an_ordinary_label_is_kept(text: str) -> None:
    assert validate(text) == text


def test_blanks_and_line_breaks_in_a_label_become_one_blank() -> None:
    assert validate(" names\n\tof  cities ") == "names of cities"


def test_missing_labels_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="neuroscope labels generate"):
        read_labels(tmp_path / "labels.json")


@pytest.mark.parametrize("content", ["{", "[1]", '{"x": "label"}', '{"1": 2}', '{"-1": "label"}'])
def test_a_file_that_is_no_labels_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "labels.json"
    path.write_text(content)
    with pytest.raises(ArtefactError, match=r"labels\.json"):
        read_labels(path)


def test_a_parquet_file_without_labels_is_refused_with_its_columns(tmp_path: Path) -> None:
    pl.DataFrame({"feature": [1], "text": ["x"]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(ArtefactError, match="lacks the columns label; it has feature, text"):
        read_labels(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"not parquet")
    with pytest.raises(ArtefactError, match="not a readable Parquet file"):
        read_labels(tmp_path / "y.parquet")


def test_a_source_without_a_file_has_nothing_to_say(tmp_path: Path) -> None:
    assert load_labels({"claude": tmp_path / "none.json"}).text(3) == "feature_3"
