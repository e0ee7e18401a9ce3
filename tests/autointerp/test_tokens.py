"""The labeler that needs no key, on features whose meaning is known."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from autointerp.conftest import Labelled
from autointerp.emulated import FEATURES, Sweep
from neuroscope.autointerp.describe import describe
from neuroscope.autointerp.evidence import Examples, PoolSide
from neuroscope.autointerp.labeler import LabelRequest
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.tokens import TokensLabeler, confidence
from neuroscope.autointerp.words import Vocabulary
from neuroscope.labels import refusal


@pytest.mark.parametrize(
    ("feature", "label"),
    [
        ("paris", '"Paris"'),
        ("copenhagen", '"Copenhagen"'),
        ("self", '"self"'),
        ("May", '"May" (capitalised)'),
        ("after of", 'token after "of"'),
        ("before of", 'say "of" next'),
        ("university of", '"of" after "University"'),
        ("indentation", "indentation"),
        ("always", "almost every token"),
    ],
)
def test_a_feature_is_called_what_it_is(labelled: Labelled, feature: str, label: str) -> None:
    assert labelled.label(feature)["label"] == label


@pytest.mark.parametrize(
    ("feature", "beginning"),
    [
        ("digits", "numbers ("),
        ("ism", 'word piece "ism" ('),
        ("sentence start", "first words of sentences ("),
        ("chemistry", "in texts on "),
    ],
)
def test_a_kind_of_word_is_named_with_instances(labelled: Labelled, feature: str, beginning: str) -> None:
    label = labelled.label(feature)["label"]
    assert isinstance(label, str)
    assert label.startswith(beginning)


def test_a_family_of_words_is_listed(labelled: Labelled) -> None:
    label = labelled.label("royals")["label"]
    assert isinstance(label, str)
    assert set(label.split(", ")) == {'"king"', '"queen"', '"emperor"'}


def test_a_topic_is_named_by_its_words(labelled: Labelled) -> None:
    from autointerp.emulated import TOPICS

    rule = Rule.from_json(str(labelled.label("chemistry")["rule"]))
    assert rule.kind == "context"
    assert len(rule.items) >= 4
    assert set(rule.items) <= set(TOPICS["chemistry"])


def test_confidence_follows_how_many_examples_are_covered(labelled: Labelled) -> None:
    sure = {name for name in FEATURES if name != "dead" and labelled.label(name)["confidence"] == "high"}
    assert sure == set(FEATURES) - {"noise", "always", "dead"}
    assert labelled.label("noise")["confidence"] == labelled.label("always")["confidence"] == "low"
    assert [
        confidence(c, f, n)
        for c, f, n in ((0.9, 0.0, 25), (0.9, 0.3, 25), (0.5, 0, 25), (0.3, 0, 25), (1, 0, 3))
    ] == [
        "high",
        "medium",
        "medium",
        "low",
        "low",
    ]


def test_every_label_is_fit_to_show_and_says_what_its_rule_checks(labelled: Labelled) -> None:
    for row in pl.read_parquet(labelled.labels_path).iter_rows(named=True):
        assert refusal(row["label"]) is None
        said = describe(Rule.from_json(row["rule"]))
        row["label"] = row["label"].removeprefix("mixed: ")
        assert row["label"].removeprefix(said) == "" or row["label"].removeprefix(said).startswith(" (")


def test_promoted_words_name_a_feature_whose_examples_disagree(emulated_sweep: Sweep) -> None:
    world = emulated_sweep.world
    side = PoolSide.read(emulated_sweep.pool, labelling=True)
    labeler = TokensLabeler(side, Vocabulary(world.text))
    full = side.windows[(side.windows >= 0).all(1)]
    windows = full[np.random.default_rng(3).choice(len(full), 20, replace=False)]
    windows[::4, 13] = world.token_id(" king")
    examples = Examples(windows, np.full(20, 12), np.ones(20, np.float32))
    none = examples.take([])
    request = LabelRequest(900, examples, none, world.text, promoted=(" king", " queen", " throne", "zzz"))
    result = labeler.label(request)
    assert result.state == "labelled"
    assert result.label is not None
    assert result.label == 'mixed: say "king", "queen", "throne" next'
    assert result.confidence == "low"
