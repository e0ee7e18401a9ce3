"""The arithmetic of detection scores, against numbers worked by hand and against scikit-learn."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from neuroscope.autointerp.accuracy import Confusion, balanced_accuracy, bootstrap, wilson
from neuroscope.errors import LabelError


def test_verdicts_are_counted_by_what_was_true() -> None:
    confusion = Confusion.count([True, True, True, False, False], [True, False, True, True, False])
    assert confusion == Confusion(tp=2, fp=1, tn=1, fn=1)


def test_a_missing_verdict_is_an_error_not_a_smaller_denominator() -> None:
    with pytest.raises(LabelError, match="2 verdicts for 3 windows"):
        Confusion.count([True, True, False], [True, True])


def test_balanced_accuracy_is_the_mean_of_both_rates() -> None:
    score = balanced_accuracy(Confusion(tp=40, fp=5, tn=15, fn=10))
    assert score is not None
    assert score.balanced_accuracy == pytest.approx((0.8 + 0.75) / 2)


def test_saying_yes_to_everything_scores_a_half_however_many_positives_there_are() -> None:
    score = balanced_accuracy(Confusion(tp=50, fp=20, tn=0, fn=0))
    assert score is not None
    assert score.balanced_accuracy == 0.5


def test_without_one_kind_of_window_there_is_no_score() -> None:
    assert balanced_accuracy(Confusion(tp=5, fp=0, tn=0, fn=1)) is None
    assert balanced_accuracy(Confusion(tp=0, fp=2, tn=5, fn=0)) is None


def test_balanced_accuracy_agrees_with_scikit_learn() -> None:
    rng = random.Random(0)
    for _ in range(20):
        truth = [True, False, *(rng.random() < 0.7 for _ in range(68))]
        verdicts = [rng.random() < 0.6 for _ in truth]
        score = balanced_accuracy(Confusion.count(truth, verdicts))
        assert score is not None
        assert score.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, verdicts))
        assert 0 <= score.low <= score.balanced_accuracy <= score.high <= 1


def test_wilson_agrees_with_published_values() -> None:
    """Newcombe 1998 (Statistics in Medicine 17, 857-872), table I: 81/263, 15/148, 0/20 and 1/29."""
    for successes, trials, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson(successes, trials) == pytest.approx((low, high), abs=6e-5)
    assert wilson(0, 0) == (0.0, 1.0)


def test_a_perfect_score_of_few_windows_is_less_sure_than_of_many() -> None:
    few, many = balanced_accuracy(Confusion(5, 0, 5, 0)), balanced_accuracy(Confusion(50, 0, 50, 0))
    assert few is not None
    assert many is not None
    assert few.low < many.low < 1.0 == many.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """The oracle: many scores of a detector whose rates are known."""
    rng = np.random.default_rng(0)
    for sensitivity, specificity in [(0.8, 0.7), (0.95, 0.5), (0.6, 0.98)]:
        truth, inside, runs = (sensitivity + specificity) / 2, 0, 2000
        for tp, tn in zip(
            rng.binomial(50, sensitivity, runs), rng.binomial(20, specificity, runs), strict=True
        ):
            score = balanced_accuracy(Confusion(int(tp), 20 - int(tn), int(tn), 50 - int(tp)))
            assert score is not None
            inside += score.low <= truth <= score.high
        assert 0.93 <= inside / runs <= 0.98


def _verdicts_of_documents(rng: np.random.Generator, per_document: int) -> np.ndarray:
    """Counts tp, fp, tn, fn of 20 documents with windows that fire and 20 without; one verdict a document."""
    counts = np.zeros((40, 4), np.int64)
    recognised, silent = rng.random(20) < 0.8, rng.random(20) < 0.7
    counts[:20, 0], counts[:20, 3] = recognised * per_document, ~recognised * per_document
    counts[20:, 2], counts[20:, 1] = silent * per_document, ~silent * per_document
    return counts


def test_windows_of_one_document_are_no_independent_evidence() -> None:
    """The oracle: documents whose windows are all judged alike, so that only documents count."""
    rng, runs, inside, naive = np.random.default_rng(0), 400, 0, 0
    for _ in range(runs):
        counts = _verdicts_of_documents(rng, per_document=5)
        confusion = Confusion(*counts.sum(0).tolist())
        aware, unaware = balanced_accuracy(confusion, counts), balanced_accuracy(confusion)
        assert aware is not None
        assert unaware is not None
        inside += aware.low <= 0.75 <= aware.high
        naive += unaware.low <= 0.75 <= unaware.high
    assert inside / runs > 0.9
    assert naive / runs < 0.75


def test_one_window_a_document_is_wilsons_interval() -> None:
    counts = _verdicts_of_documents(np.random.default_rng(1), per_document=1)
    confusion = Confusion(*counts.sum(0).tolist())
    assert balanced_accuracy(confusion, counts) == balanced_accuracy(confusion)


def test_a_perfect_score_on_shared_documents_keeps_its_doubt() -> None:
    counts = np.array([[25, 0, 0, 0], [25, 0, 0, 0], [0, 0, 10, 0], [0, 0, 10, 0]])
    score, alone = (
        balanced_accuracy(Confusion(50, 0, 20, 0), counts),
        balanced_accuracy(Confusion(50, 0, 20, 0)),
    )
    assert score == alone
    assert score is not None
    assert score.low < 0.95


def test_the_same_verdicts_have_the_same_interval() -> None:
    counts = _verdicts_of_documents(np.random.default_rng(2), per_document=3)
    assert bootstrap(counts) == bootstrap(counts)
