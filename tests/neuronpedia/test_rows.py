"""What is taken from Neuronpedia's rows, and what is left out and counted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fakes.neuronpedia import Row, activation, explanation, feature, packed

from neuroscope.errors import LabelError, SourceError
from neuroscope.labels import Label, LabelSet
from neuroscope.neuronpedia.activations import strongest
from neuroscope.neuronpedia.explanations import in_order, to_labels
from neuroscope.neuronpedia.features import to_frames
from neuroscope.neuronpedia.rows import Tally, read_rows

D_SAE = 64


def read(tmp_path: Path, *rows: Row | str, tally: Tally | None = None) -> list[tuple[int, Row]]:
    path = tmp_path / "batch-0.jsonl.gz"
    path.write_bytes(packed(rows))
    return list(read_rows([path], D_SAE, tally or Tally()))


def test_lines_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    tally = Tally()
    rows = [
        "{",
        "[1]",
        "null",
        {"index": "-1"},
        {"index": None},
        {"index": True},
        {"index": "7"},
        {"index": 8},
        "  ",
    ]
    found = read(tmp_path, *rows, "[" * 100_000, tally=tally)
    assert [index for index, _ in found] == [7, 8]
    assert tally.rows == 9, "blank lines are no rows"
    assert tally.refused == {"not a JSON object": 4, "no feature index": 3}


def test_a_feature_that_the_sae_lacks_is_of_another_sae(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match=r"feature 64, this SAE has 64.*neuronpedia\.sae_id") as raised:
        read(tmp_path, {"index": "3"}, {"index": "64"})
    assert "batch-0.jsonl.gz" in str(raised.value)


def test_a_batch_of_nothing_is_no_damage(tmp_path: Path) -> None:
    assert read(tmp_path) == []


def test_a_file_without_one_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"batch-0\.jsonl\.gz: not one line is a JSON object.*--refresh"):
        read(tmp_path, "an error", "and more of it")


def test_a_file_that_was_damaged_in_the_cache_is_named(tmp_path: Path) -> None:
    path = tmp_path / "batch-0.jsonl.gz"
    path.write_bytes(packed([explanation(i, "a text of some length") for i in range(60)])[:-20])
    with pytest.raises(SourceError, match=r"batch-0\.jsonl\.gz: damaged in the cache.*--refresh"):
        list(read_rows([path], D_SAE, Tally()))


def test_every_explanation_is_kept_with_its_method_model_and_date() -> None:
    rows = [
        (3, explanation(3, " French\n cities ", "oai_token", "gpt-4o", createdAt="2024-08-01")),
        (3, explanation(3, "Paris", "np_max-act", "gemini")),
    ]
    first, second = to_labels(rows, Tally())
    assert Label(3, "neuronpedia", "French cities", None, "gpt-4o", "oai_token", "2024-08-01") in (
        first,
        second,
    )
    assert Label(3, "neuronpedia", "Paris", None, "gemini", "np_max-act", None) in (first, second)


def test_labels_that_may_not_be_shown_are_counted_by_reason() -> None:
    tally = Tally()
    ok = " ".join(["long"] * 20)  # nobody asked Neuronpedia's labelers to be short
    texts = [
        "word " * 61,
        "word " * 62,
        "x" * 401,
        "<b>bold</b>",
        "see https://example.org",
        "right\u202eleft",
        "",
        ok,
    ]
    rows = [(i, explanation(i, text)) for i, text in enumerate(texts)]
    rows += [
        (20, {"index": "20", "description": None}),
        (21, {"index": "21", "description": "a \ud800 half"}),
    ]
    assert [label.label for label in to_labels(rows, tally)] == [ok]
    assert tally.refused == {
        "it has more than 60 words": 2,
        "it has more than 400 characters": 1,
        "it contains markup": 1,
        "it contains a URL": 1,
        "it contains the invisible character": 2,
        "it is empty": 1,
        "no text": 1,
    }


def test_the_first_label_is_of_the_method_that_explained_most_features_then_the_newest() -> None:
    def label(feature: int, text: str, method: str, created: str | None = None) -> Label:
        return Label(feature, "neuronpedia", text, model="m", method=method, created_at=created)

    everywhere = [label(i, f"common {i}", "common", "2024") for i in range(3)]
    others = [
        label(1, "rare", "rare", "2026"),
        label(1, "newer", "common", "2025"),
        label(1, "undated", "common"),
    ]
    ordered = in_order([*others, *everywhere])
    assert [found.label for found in ordered if found.feature == 1] == [
        "newer",
        "common 1",
        "undated",
        "rare",
    ]
    assert LabelSet(tuple(ordered)).best(["neuronpedia"]).text(1) == "newer"
    assert [found.feature for found in ordered] == [0, 1, 1, 1, 1, 2]


def test_odd_names_of_methods_are_dropped_and_the_label_kept() -> None:
    rows = [(1, explanation(1, "ok", "\x1b[31m", "x" * 200, createdAt=7))]
    assert to_labels(rows, Tally()) == [Label(1, "neuronpedia", "ok")]


def test_rates_and_tokens_of_features() -> None:
    rows = [
        (5, feature(5, 0.25, 8.5)),
        (2, feature(2, 0.5, pos_str=["▁a"], pos_values=[1], neg_str=[], neg_values=[])),
    ]
    prior, logits = to_frames(rows, Tally())
    assert prior.rows() == [(2, 0.5, 9.0), (5, 0.25, 8.5)]
    shown = logits.select("feature", "kind", "rank", "token_id", "token", "weight", "source").rows()
    assert shown == [
        (2, "promoted", 0, None, " a", 1.0, "neuronpedia"),
        (5, "promoted", 0, None, " Paris", 1.5, "neuronpedia"),
        (5, "promoted", 1, None, " Rome", 1.25, "neuronpedia"),
        (5, "suppressed", 0, None, " the", -0.5, "neuronpedia"),
    ]


def test_ten_tokens_of_a_kind_are_kept_strongest_first() -> None:
    weights = [float(i) for i in range(20)]
    names = [f"t{i}" for i in range(20)]
    row = feature(0, 0.1, pos_str=names, pos_values=weights, neg_str=names, neg_values=[-w for w in weights])
    _, logits = to_frames([(0, row)], Tally())
    for kind in ("promoted", "suppressed"):
        assert logits.filter(kind=kind)["token"].to_list() == [f"t{i}" for i in range(19, 9, -1)]


def test_figures_that_cannot_be_right_are_null_and_counted() -> None:
    tally = Tally()
    rows = [
        (0, feature(0, math.nan)),
        (1, feature(1, 1.5)),
        (2, feature(2, 0.5, math.inf)),
        (3, feature(3, 0.5, pos_values=[math.nan, 2.0])),
        (4, feature(4, 0.5, pos_values=[1.0])),
        (5, {"index": "5", "frac_nonzero": "0.5", "maxActApprox": 10**400}),
        (2, feature(2, 0.75)),
    ]
    prior, logits = to_frames(rows, tally)
    assert prior["firing_rate"].to_list() == [None, None, 0.5, 0.5, 0.5, None]
    assert prior["max_activation"].to_list() == [9.0, 9.0, None, 9.0, 9.0, None]
    assert logits.filter(feature=3, kind="promoted")["token"].to_list() == [" Rome"]
    assert logits["weight"].is_finite().all()
    assert {why: n for why, n in tally.refused.items() if n} == {
        "frac_nonzero is no share from 0 to 1": 3,
        "maxActApprox is no activation": 2,
        "tokens without a weight": 1,
        "tokens and weights that are no pairs": 1,
        "a feature a second time": 1,
    }


def test_the_strongest_examples_of_each_feature_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscope.neuronpedia.activations.PART", 4)
    rows = [
        (f, activation(f, ["a", "b"], [0.0, strength]))
        for strength in (1.0, 3.0, 2.0, 5.0, 4.0)
        for f in (0, 1)
    ]
    kept = strongest(rows, 2, Tally())
    assert kept.select("feature", "rank", "activation", "peak").rows() == [
        (0, 0, 5.0, 1),
        (0, 1, 4.0, 1),
        (1, 0, 5.0, 1),
        (1, 1, 4.0, 1),
    ]
    assert kept["tokens"].to_list() == [["a", "b"]] * 4
    assert kept["values"].to_list()[0] == [0.0, 5.0]


def test_examples_that_cannot_be_right_are_counted() -> None:
    tally = Tally()
    good = activation(0, ["a", "b"], [0.0, 2.0])
    faults = [
        {"tokens": ["a"]},
        {"values": None},
        {"values": [0.0, math.nan]},
        {"tokens": ["a", 7]},
        {"maxValue": math.inf},
        {"maxValueTokenIndex": 2},
        {"maxValueTokenIndex": 0},
        {"maxValue": 0.0, "values": [0.0, 0.0]},
    ]
    kept = strongest([(0, good), *((0, {**good, **fault}) for fault in faults)], 20, tally)
    assert len(kept) == 1
    assert tally.refused == {
        "tokens and values that are no pairs": 2,
        "a token that is no text, or an activation that is no number": 3,
        "a peak that is not in the text": 1,
        "maxValue is not the value at maxValueTokenIndex": 1,
        "the feature is silent": 1,
    }
