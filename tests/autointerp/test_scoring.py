"""Detection scores of labels."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autointerp.conftest import Labelled
from autointerp.emulated import FEATURES, NUMBER, Sweep
from neuroscope.autointerp.accuracy import balanced_accuracy
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.score_rows import SCHEMA
from neuroscope.autointerp.scoring import Scoring, judge, read_named, score_labels, score_rule
from neuroscope.autointerp.trials import Numbers, Trials
from neuroscope.autointerp.words import PAD, Vocabulary
from neuroscope.errors import LabelError
from neuroscope.labels import Label, LabelSet
from neuroscope.store.frames import scores_by_label

ORACLE = {
    "paris": Rule("word", ("Paris",)),
    "digits": Rule("class", ("numbers",)),
    "after of": Rule("after", ("of",)),
    "self": Rule("word", ("self",)),
    "ism": Rule("suffix", ("ism",)),
    "royals": Rule("word", ("king", "queen", "emperor")),
    "copenhagen": Rule("word", ("Copenhagen",)),
    "May": Rule("word", ("May",), cased=True),
    "university of": Rule("after", ("University",)),
}


@pytest.fixture(scope="module")
def trials(emulated_sweep: Sweep) -> Trials:
    vocabulary = Vocabulary(emulated_sweep.world.text)
    return Trials(
        emulated_sweep.examples,
        emulated_sweep.pool,
        vocabulary,
        numbers=Numbers(),
        neighbours=emulated_sweep.neighbours,
    )


def score_of(rule: Rule, trials: Trials, feature: str) -> float:
    trial = trials.of(NUMBER[feature])
    score = balanced_accuracy(judge(rule, trial.positives, trial.negatives))
    assert score is not None
    return score.balanced_accuracy


def test_label_scoring_detection(trials: Trials) -> None:
    assert score_of(Rule("word", ("Paris",)), trials, "paris") > 0.7
    assert abs(score_of(Rule("word", ("king", "throne", "acid")), trials, "paris") - 0.5) < 0.15
    assert score_of(Rule("any"), trials, "paris") == 0.5
    assert score_of(Rule("word", ("nowhere",)), trials, "paris") == 0.5


@pytest.mark.parametrize("feature", ORACLE)
def test_an_oracle_scores_near_one(trials: Trials, feature: str) -> None:
    assert score_of(ORACLE[feature], trials, feature) > 0.97


def test_any_label_scores_a_half_when_the_truth_is_shuffled(trials: Trials) -> None:
    rng, scores = random.Random(0), []
    for feature, rule in ORACLE.items():
        trial = trials.of(NUMBER[feature])
        windows = np.concatenate([trial.positives.ids, trial.negatives.ids])
        for _ in range(20):
            order = np.array(rng.sample(range(len(windows)), len(windows)))
            shuffled = trial.positives.vocabulary.read(windows[order])
            half = len(windows) // 2
            score = balanced_accuracy(
                judge(rule, shuffled.take(np.arange(half)), shuffled.take(np.arange(half, len(windows))))
            )
            assert score is not None
            scores.append(score.balanced_accuracy)
    assert abs(sum(scores) / len(scores) - 0.5) < 0.02


def test_labels_of_other_features_score_near_a_half(labelled: Labelled) -> None:
    assert labelled.score_counts.shuffled == pytest.approx(0.5, abs=0.08)
    assert labelled.score_counts.mean is not None
    assert labelled.score_counts.mean > 0.9


@pytest.mark.parametrize("feature", [*ORACLE, "chemistry", "sentence start", "before of", "indentation"])
def test_the_tokens_labelers_labels_score_high(labelled: Labelled, feature: str) -> None:
    score = labelled.score(feature)
    assert score["balanced_accuracy"] > 0.9  # type: ignore[operator]
    assert score["low"] <= score["balanced_accuracy"] <= score["high"]  # type: ignore[operator]
    assert score["failed"] == 0


def test_a_label_of_a_feature_that_means_nothing_scores_near_a_half(labelled: Labelled) -> None:
    assert labelled.score("noise")["balanced_accuracy"] == pytest.approx(0.5, abs=0.15)


def test_what_cannot_be_scored_is_counted_and_has_no_score(labelled: Labelled) -> None:
    """The always-on feature leaves no window without it."""
    row = labelled.score("always")
    assert row["balanced_accuracy"] is None
    assert row["failed"] > 0  # type: ignore[operator]
    assert row["tp"] == row["fp"] == row["tn"] == row["fn"] == 0
    assert labelled.score_counts.failed == 1
    assert labelled.score_counts.scored == len(FEATURES) - 2


def test_windows_without_the_feature_are_silent_throughout(trials: Trials, emulated_sweep: Sweep) -> None:
    trial = trials.of(NUMBER["paris"])
    assert len(trial.negatives) == 20
    paris = emulated_sweep.world.token_id(" Paris")
    assert not (trial.negatives.ids == paris).any()
    assert not (trial.near_misses.ids == paris).any()
    assert (trial.positives.ids[:, 12] == paris).all()


def test_near_misses_hold_the_features_tokens_or_its_neighbours_and_are_kept_apart(
    trials: Trials, labelled: Labelled
) -> None:
    """`of` is everywhere; the feature fires on it only after `University`."""
    trial = trials.of(NUMBER["university of"])
    of = set(trial.positives.ids[:, 12].tolist())
    with_token = [bool(of & set(window)) for window in trial.near_misses.ids.tolist()]
    assert with_token.count(True) >= 10
    vague = score_rule(NUMBER["university of"], "x", Rule("word", ("of",)), trials)
    assert [row.method for row in vague] == ["rule", "rule_near_miss"]
    assert vague[0].balanced_accuracy > vague[1].balanced_accuracy  # type: ignore[operator]
    assert vague[1].fp == with_token.count(True)
    assert labelled.score("university of", "rule_near_miss")["balanced_accuracy"] > 0.9  # type: ignore[operator]


def test_windows_in_which_only_the_nearest_neighbour_fires_are_near_misses(
    emulated_sweep: Sweep, tmp_path: Path
) -> None:
    feature, nearest, farther = (NUMBER[name] for name in ("university of", "digits", "always"))
    rows = {"feature": [feature] * 2, "other": [farther, nearest], "cofiring": [0.1, 0.9], "n_both": [9, 9]}
    pl.DataFrame(rows).write_parquet(tmp_path / "neighbours.parquet")
    made = Trials(
        emulated_sweep.examples,
        emulated_sweep.pool,
        Vocabulary(emulated_sweep.world.text),
        numbers=Numbers(),
        neighbours=tmp_path / "neighbours.parquet",
    )
    near = made.of(feature).near_misses.ids.tolist()
    pool = pl.read_parquet(emulated_sweep.pool).select("window", "features")
    firing = {tuple(window): set(features) for window, features in pool.iter_rows()}
    of = emulated_sweep.world.token_id(" of")
    beside = [window for window in near if of not in window]
    assert len(beside) == len(near) - len(beside) == 10
    assert all(feature not in firing[tuple(window)] for window in near)
    assert all(nearest in firing[tuple(window)] for window in beside)


def test_a_wrong_mark_stands_where_the_feature_is_silent(trials: Trials, emulated_sweep: Sweep) -> None:
    """Of `Copenhagen` in three pieces the feature marks the first: the others are no wrong marks."""
    marked = trials.marked(NUMBER["copenhagen"])
    first, pieces = (
        (emulated_sweep.world.token_id(piece) for piece in (" Cop", "enh")),
        {"enh", "agen", " Cop"},
    )
    assert (marked.right.ids[:, 12] == next(first)).all()
    assert len(marked.right) == len(marked.wrong) == 25
    assert not {emulated_sweep.world.text(token) for token in marked.wrong.ids[:, 12].tolist()} & pieces
    holding = (marked.wrong.ids == emulated_sweep.world.token_id(" Cop")).any(1)
    assert holding.sum() >= 10, "windows that hold the feature elsewhere come first"


@pytest.mark.parametrize("feature", ["paris", "after of", "copenhagen", "May"])
def test_fuzzing_tells_rules_that_find_the_token_from_rules_that_find_the_text(
    trials: Trials, feature: str
) -> None:
    number = NUMBER[feature]
    oracle = score_rule(number, "x", ORACLE[feature], trials, ["fuzzing"])
    assert [row.method for row in oracle] == ["rule_fuzzing"]
    assert oracle[0].balanced_accuracy > 0.97  # type: ignore[operator]
    assert score_rule(number, "x", Rule("any"), trials, ["fuzzing"])[0].balanced_accuracy == 0.5
    stranger = score_rule(number, "x", Rule("word", ("king", "throne")), trials, ["fuzzing"])
    assert stranger[0].balanced_accuracy == pytest.approx(0.5, abs=0.1)


def test_both_methods_make_rows_of_their_own(
    emulated_sweep: Sweep, labelled: Labelled, tmp_path: Path
) -> None:
    score_labels(
        labels=[labelled.labels_path],
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        tokens=emulated_sweep.world.text,
        out=tmp_path / "scores.parquet",
        how=Scoring(methods=("detection", "fuzzing")),
    )
    frame = pl.read_parquet(tmp_path / "scores.parquet")
    rows = frame.filter(pl.col("feature") == NUMBER["university of"])
    assert rows["method"].to_list() == ["rule", "rule_fuzzing", "rule_near_miss"]
    assert scores_by_label(frame)[NUMBER["university of"], "tokens"] == rows["balanced_accuracy"][0]


def test_the_detector_sees_no_activation_and_no_position(trials: Trials) -> None:
    """A window's verdict is the same wherever in it the feature would fire."""
    trial = trials.of(NUMBER["paris"])
    rolled = np.full((len(trial.positives), 45), PAD, np.int32)
    rolled[:, 20:] = trial.positives.ids
    moved = trial.positives.vocabulary.read(rolled)
    for rule in ORACLE.values():
        assert judge(rule, moved, trial.negatives) == judge(rule, trial.positives, trial.negatives)


def test_the_same_windows_are_drawn_every_time_and_others_with_another_seed(emulated_sweep: Sweep) -> None:
    def drawn(seed: int) -> list[list[int]]:
        vocabulary = Vocabulary(emulated_sweep.world.text)
        made = Trials(emulated_sweep.examples, emulated_sweep.pool, vocabulary, numbers=Numbers(), seed=seed)
        return made.of(NUMBER["paris"]).negatives.ids.tolist()

    assert drawn(0) == drawn(0) != drawn(1)


def test_the_table_has_the_columns_that_the_database_takes(labelled: Labelled) -> None:
    frame = pl.read_parquet(labelled.scores_path)
    assert dict(frame.schema) == {name: kind() for name, kind in SCHEMA.items()}
    scored = frame.filter(pl.col("balanced_accuracy").is_not_null())
    sensitivity = scored["tp"] / (scored["tp"] + scored["fn"])
    specificity = scored["tn"] / (scored["tn"] + scored["fp"])
    np.testing.assert_allclose(scored["balanced_accuracy"], (sensitivity + specificity) / 2)


def test_a_label_is_shown_with_its_score_on_random_windows(labelled: Labelled) -> None:
    scores = scores_by_label(pl.read_parquet(labelled.scores_path))
    assert scores[NUMBER["paris"], "tokens"] == labelled.score("paris")["balanced_accuracy"]
    assert (NUMBER["always"], "tokens") not in scores
    assert len(scores) == labelled.score_counts.scored


def test_labels_in_words_are_counted_when_no_language_model_judges_them(
    emulated_sweep: Sweep, labelled: Labelled, tmp_path: Path
) -> None:
    LabelSet((Label(0, "claude", "the French capital"),)).to_parquet(tmp_path / "claude.parquet")
    named = read_named([tmp_path / "claude.parquet", labelled.labels_path])
    assert [(label.source, label.rule is None) for label in named[0]] == [("claude", True), ("tokens", False)]
    counts = score_labels(
        labels=[tmp_path / "claude.parquet"],
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        tokens=emulated_sweep.world.text,
        out=tmp_path / "scores.parquet",
    )
    assert (counts.scored, counts.without_judge, counts.mean) == (0, 1, None)
    assert len(pl.read_parquet(tmp_path / "scores.parquet")) == 0


def test_a_broken_rule_is_an_error_not_a_low_score(tmp_path: Path) -> None:
    LabelSet((Label(0, "tokens", "x"),)).to_parquet(tmp_path / "x.parquet", {"rule": ['{"kind": "magic"}']})
    with pytest.raises(LabelError, match="Not a label's rule"):
        read_named([tmp_path / "x.parquet"])
