"""The labeler that needs no key, on features whose meaning is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autointerp.conftest import Labelled
from autointerp.emulated import FEATURES, NUMBER, Sweep
from neuroscope.autointerp.describe import describe
from neuroscope.autointerp.evidence import Examples, PoolSide
from neuroscope.autointerp.labeler import LabelRequest, LabelResult
from neuroscope.autointerp.pipeline import label_features
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.tokens import TokensLabeler, confidence
from neuroscope.autointerp.words import Vocabulary
from neuroscope.labels import SCHEMA, refusal


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


def test_a_dead_feature_has_no_label_and_is_counted(labelled: Labelled) -> None:
    frame = pl.read_parquet(labelled.labels_path)
    assert NUMBER["dead"] not in frame["feature"].to_list()
    assert (labelled.label_counts.labelled, labelled.label_counts.without_label) == (len(FEATURES) - 1, 1)
    assert sum(labelled.label_counts.by_confidence.values()) == len(frame)


def test_every_label_is_fit_to_show_and_says_what_its_rule_checks(labelled: Labelled) -> None:
    for row in pl.read_parquet(labelled.labels_path).iter_rows(named=True):
        assert refusal(row["label"]) is None
        said = describe(Rule.from_json(row["rule"]))
        assert row["label"].removeprefix(said) == "" or row["label"].removeprefix(said).startswith(" (")


def test_the_file_has_the_columns_of_labels_and_the_rule(labelled: Labelled) -> None:
    frame = pl.read_parquet(labelled.labels_path)
    assert frame.columns == [*SCHEMA, "rule", "pattern"]
    assert set(frame["source"]) == {"tokens"}
    assert frame["model"].null_count() == len(frame)
    assert frame["feature"].is_sorted()


def test_the_same_evidence_gives_the_same_labels(
    labelled: Labelled, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    label_features(
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        stats=emulated_sweep.stats,
        logits=emulated_sweep.logits,
        tokens=emulated_sweep.world.text,
        out=tmp_path / "again.parquet",
    )
    first, again = pl.read_parquet(labelled.labels_path), pl.read_parquet(tmp_path / "again.parquet")
    assert first.drop("created_at").equals(again.drop("created_at"))


class Recorder:
    """A labeler that refuses to name one feature and remembers what it was shown."""

    source, model, method = "claude", "recorder", "none"

    def __init__(self) -> None:
        self.requests: dict[int, LabelRequest] = {}

    def label(self, request: LabelRequest) -> LabelResult:
        self.requests[request.feature] = request
        if request.feature == 0:
            return LabelResult(0, "refused", pattern="no")
        return LabelResult(request.feature, "labelled", f"thing {request.feature}", "low")


def test_any_labeler_can_be_asked_and_a_refusal_is_no_label(emulated_sweep: Sweep, tmp_path: Path) -> None:
    recorder, out = Recorder(), tmp_path / "claude.parquet"
    counts = label_features(
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        stats=emulated_sweep.stats,
        tokens=emulated_sweep.world.text,
        out=out,
        per_feature=12,
        sampled=4,
        labeler=recorder,
    )
    frame = pl.read_parquet(out)
    assert 0 not in frame["feature"].to_list()
    assert set(frame["source"]) == {"claude"}
    assert counts.without_label == 2
    asked = recorder.requests[NUMBER["digits"]]
    assert (len(asked.top), len(asked.sample)) == (12, 4)


def test_a_labeler_never_sees_a_document_that_its_label_is_scored_on(
    emulated_sweep: Sweep, tmp_path: Path
) -> None:
    recorder = Recorder()
    label_features(
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        tokens=emulated_sweep.world.text,
        out=tmp_path / "x.parquet",
        labeler=recorder,
    )
    frame = pl.read_parquet(emulated_sweep.examples)
    side, seen = PoolSide.read(emulated_sweep.pool, labelling=True), 0
    rows = np.repeat(np.arange(len(side.windows), dtype=np.int32)[:, None], 25, axis=1)
    numbered = replace(side, windows=rows)
    for feature, request in recorder.requests.items():
        own = frame.filter(pl.col("feature") == feature)
        scored = set(own.filter(pl.col("kind") == "held_out")["doc_id"])
        assert request.unseen == scored
        assert not scored & set(own.filter(pl.col("kind") != "held_out")["doc_id"])
        shown = numbered.firings(feature, without=request.unseen, limit=10_000)
        assert not scored & {side.documents[row] for row in shown.windows[:, 0].tolist()}
        seen += len(shown)
    assert seen > 50


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
    assert result.label.startswith("say ")
    assert '"king"' in result.label
