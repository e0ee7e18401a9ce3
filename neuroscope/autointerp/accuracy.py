"""The arithmetic of a detection score: a confusion matrix, its balanced accuracy and an interval for it.

Knows nothing of labels or windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neuroscope.errors import LabelError

Z95 = 1.959963984540054
"""Two-sided 95 per cent."""


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


def balanced_accuracy(confusion: Confusion) -> Score | None:
    """(tp / (tp + fn) + tn / (tn + fp)) / 2; None when one kind of window is missing.

    The interval combines the two rates' Wilson intervals by squared distances from the estimate (Newcombe 1998,
    method 10, for a sum instead of a difference).
    """
    positives, negatives = confusion.tp + confusion.fn, confusion.tn + confusion.fp
    if positives == 0 or negatives == 0:
        return None
    sensitivity, specificity = confusion.tp / positives, confusion.tn / negatives
    low_1, high_1 = wilson(confusion.tp, positives)
    low_2, high_2 = wilson(confusion.tn, negatives)
    score = (sensitivity + specificity) / 2
    below = math.hypot(sensitivity - low_1, specificity - low_2) / 2
    above = math.hypot(high_1 - sensitivity, high_2 - specificity) / 2
    return Score(score, max(0.0, score - below), min(1.0, score + above))
