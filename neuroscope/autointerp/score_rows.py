"""Rows of scores.parquet: from the verdicts on a feature's windows to a score with its interval.

Who gave the verdicts is not known here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.autointerp.accuracy import Confusion, balanced_accuracy
from neuroscope.autointerp.trials import MIN_WINDOWS, Documents, Marked, Trial
from neuroscope.sources import replace_atomically

Verdicts = NDArray[np.int8]
"""1: the label fits, 0: it does not, NO_VERDICT."""
NO_VERDICT = -1


@dataclass(frozen=True, slots=True)
class Names:
    """What scores are called in the column `method`. The one that a label is shown with is the first by name."""

    detection: str
    near_miss: str
    """Detection against windows that nearly hold the feature: harder, and kept apart."""
    fuzzing: str


BY_RULE = Names("rule", "rule_near_miss", "rule_fuzzing")
BY_MODEL = Names("detection", "detection_near_miss", "fuzzing")

SCHEMA = {
    "feature": pl.Int32,
    "source": pl.String,
    "method": pl.String,
    "balanced_accuracy": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "tp": pl.Int32,
    "fp": pl.Int32,
    "tn": pl.Int32,
    "fn": pl.Int32,
    "failed": pl.Int32,
}


@dataclass(frozen=True, slots=True)
class FeatureScore:
    """One row of scores.parquet."""

    feature: int
    source: str
    method: str
    balanced_accuracy: float | None
    """None when too few windows could be judged."""
    low: float | None
    high: float | None
    tp: int
    fp: int
    tn: int
    fn: int
    failed: int
    """Windows without a verdict. They are in no other count; a label that could not be scored has at least one."""


def detection_scores(
    feature: int, source: str, names: Names, trial: Trial, verdicts: Verdicts
) -> list[FeatureScore]:
    """The label's score, and where there are near misses, its score against those.

    `verdicts` are of the positives, the negatives and the near misses, in that order; empty when none was asked for.
    """
    if not trial.enough:
        return [_unscored(feature, source, names.detection, len(trial.positives) + len(trial.negatives))]
    ends = np.cumsum([len(trial.positives), len(trial.negatives)])
    fires, silent, near = np.split(verdicts, ends)
    where = trial.documents
    rows = [_row(feature, source, names.detection, (fires, silent), (where[0], where[1]))]
    if len(near):
        rows.append(_row(feature, source, names.near_miss, (fires, near), (where[0], where[2])))
    return rows


def fuzzing_score(
    feature: int, source: str, names: Names, marked: Marked, verdicts: Verdicts
) -> FeatureScore:
    """The label's score on marked tokens. `verdicts` are of the right marks and the wrong ones, in that order."""
    if not marked.enough:
        return _unscored(feature, source, names.fuzzing, len(marked.right) + len(marked.wrong))
    right, wrong = np.split(verdicts, [len(marked.right)])
    return _row(feature, source, names.fuzzing, (right, wrong), marked.documents)


def _row(
    feature: int,
    source: str,
    method: str,
    verdicts: tuple[Verdicts, Verdicts],
    documents: tuple[Documents, Documents],
) -> FeatureScore:
    """The score of verdicts on windows with the feature and windows without it."""
    fires = np.repeat([True, False], [len(part) for part in verdicts])
    says, where = np.concatenate(verdicts), np.concatenate(documents)
    kinds = np.where(fires, np.where(says == 1, 0, 3), np.where(says == 1, 1, 2))[says >= 0]
    _, document = np.unique(where[says >= 0], return_inverse=True)
    n_documents = int(document.max(initial=-1)) + 1
    by_document = np.bincount(document * 4 + kinds, minlength=4 * n_documents).reshape(-1, 4)
    confusion = Confusion(*by_document.sum(0).tolist())
    if min(confusion.tp + confusion.fn, confusion.tn + confusion.fp) < MIN_WINDOWS:
        return _unscored(feature, source, method, len(says))
    score = balanced_accuracy(confusion, by_document)
    assert score is not None, "there are windows of both kinds"
    failed = int((says < 0).sum())
    return FeatureScore(feature, source, method, **asdict(score), **asdict(confusion), failed=failed)


def _unscored(feature: int, source: str, method: str, windows: int) -> FeatureScore:
    return FeatureScore(feature, source, method, None, None, None, 0, 0, 0, 0, max(1, windows))


def add_scores(path: Path, more: pl.DataFrame) -> None:
    """Adds rows to a scores.parquet, in its order."""
    frame = pl.concat([pl.read_parquet(path), more]).sort("feature", "source", "method")
    with replace_atomically(path) as temporary:
        frame.write_parquet(temporary)
