"""The arithmetic of a detection score: a confusion matrix, its balanced accuracy and an interval for it.

Knows nothing of labels or windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neuroscope.errors import LabelError

Z95 = 1.959963984540054
"""Two-sided 95 per cent."""

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Confusion:
    """Verdicts on windows: of those in which the feature fires, and of those in which it does not."""

    tp: int
    fp: int
    tn: int
    fn: int

    @classmethod
    def count(cls, truth: Sequence[bool], verdicts: Sequence[bool]) -> Confusion:
        """Raises `LabelError` when there is not one verdict per window."""
        if len(truth) != len(verdicts):
            raise LabelError(f"{len(verdicts)} verdicts for {len(truth)} windows.")
        pairs = [(bool(fires), bool(verdict)) for fires, verdict in zip(truth, verdicts, strict=True)]
        return cls(
            tp=pairs.count((True, True)),
            fp=pairs.count((False, True)),
            tn=pairs.count((False, False)),
            fn=pairs.count((True, False)),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """Balanced accuracy with a 95 per cent interval."""

    balanced_accuracy: float
    low: float
    high: float


def wilson(successes: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval for a proportion (1927); (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    p, n = successes / trials, trials
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def balanced_accuracy(confusion: Confusion, by_document: NDArray[np.integer] | None = None) -> Score | None:
    """(tp / (tp + fn) + tn / (tn + fp)) / 2; None when one kind of window is missing.

    The interval combines the two rates' Wilson intervals by squared distances from the estimate (Newcombe 1998,
    method 10, for a sum instead of a difference). That takes windows to be independent; those of one document are
    not. `by_document` [documents, 4] are the counts tp, fp, tn, fn of each document: where one has several windows,
    the interval is widened to that of a bootstrap over whole documents. It never gets narrower than Wilson's, since a
    bootstrap of a perfect score knows no doubt.
    """
    positives, negatives = confusion.tp + confusion.fn, confusion.tn + confusion.fp
    if positives == 0 or negatives == 0:
        return None
    sensitivity, specificity = confusion.tp / positives, confusion.tn / negatives
    low_1, high_1 = wilson(confusion.tp, positives)
    low_2, high_2 = wilson(confusion.tn, negatives)
    score = (sensitivity + specificity) / 2
    low = max(0.0, score - math.hypot(sensitivity - low_1, specificity - low_2) / 2)
    high = min(1.0, score + math.hypot(high_1 - sensitivity, high_2 - specificity) / 2)
    if by_document is not None and len(by_document) < positives + negatives:
        lower, upper = bootstrap(by_document)
        low, high = min(low, lower), max(high, upper)
    return Score(score, low, high)


def bootstrap(by_document: NDArray[np.integer]) -> tuple[float, float]:
    """The middle 95 per cent of balanced accuracy when whole documents are drawn anew; the same draws every time."""
    tp, fp, tn, fn = (_resamples(len(by_document)) @ by_document.astype(np.float32)).T
    both = (tp + fn > 0) & (tn + fp > 0)
    if not both.any():  # a single document of each kind, drawn as often as it may be
        return 0.0, 1.0
    tp, fp, tn, fn = tp[both], fp[both], tn[both], fn[both]
    scores = np.sort((tp / (tp + fn) + tn / (tn + fp)) / 2)
    cut = int(0.025 * len(scores))
    return float(scores[cut]), float(scores[-1 - cut])


@lru_cache(maxsize=256)
def _resamples(documents: int) -> NDArray[np.float32]:
    """How often each of `documents` is drawn [RESAMPLES, documents]."""
    draws = np.random.default_rng(documents).multinomial(
        documents, np.full(documents, 1 / documents), RESAMPLES
    )
    return draws.astype(np.float32)
