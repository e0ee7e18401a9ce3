"""Features worth a look: those at the ends of the scales, with their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from neuroscope.report.drift import Drift
from neuroscope.report.numbers import Missing
from neuroscope.report.record import Group, Notable
from neuroscope.stats import CalibrationStats
from neuroscope.store import FeatureLabel

COUNT = 8
"""Features of a group."""


def notable(
    labels: Sequence[FeatureLabel], stats: CalibrationStats, drift: Drift | Missing
) -> tuple[Group, ...]:
    """The groups that there is something to say about; `stats` are those of all strata."""
    label_of = {label.feature: label for label in labels}
    scored = [label for label in labels if label.balanced_accuracy is not None]
    best = sorted(scored, key=lambda label: (-(label.balanced_accuracy or 0.0), label.feature))
    worst = sorted(scored, key=lambda label: (label.balanced_accuracy or 0.0, label.feature))

    def group(title: str, meaning: str, features: Iterable[int], figure: Callable[[int], str]) -> Group:
        rows = [
            Notable(
                feature,
                label_of[feature].label if feature in label_of else f"feature_{feature}",
                label_of[feature].source if feature in label_of else None,
                figure(feature),
            )
            for feature in features
        ]
        return Group(title, meaning, tuple(rows))

    def score(feature: int) -> str:
        return f"{label_of[feature].balanced_accuracy:.2f}"

    found = [
        group("Best scores", "balanced accuracy of the label", _first(best), score),
        group("Worst scores", "balanced accuracy of the label", _first(worst), score),
        group(
            "Strongest",
            "largest activation on any token",
            _largest(stats.max_activation),
            lambda feature: f"{stats.max_activation[feature]:.4g}",
        ),
        group(
            "Most frequent",
            "share of tokens on which it fires",
            _largest(stats.firing_rate),
            lambda feature: f"{stats.firing_rate[feature]:.1%}",
        ),
    ]
    if isinstance(drift, Drift):
        found.append(
            group(
                "Most different between texts",
                f"how often, compared with {drift.reference}",
                _largest(np.abs(drift.log2_ratio)),
                lambda feature: f"{_times(drift.log2_ratio[feature])} in {drift.where[feature]}",
            )
        )
    return tuple(found for found in found if found.features)


def _first(labels: Sequence[FeatureLabel]) -> list[int]:
    return [label.feature for label in labels[:COUNT]]


def _largest(values: np.ndarray) -> list[int]:
    """Features with the largest values above zero, the lowest index first among equals."""
    order = np.argsort(-np.nan_to_num(values, nan=0.0), kind="stable")[:COUNT]
    return [int(feature) for feature in order if values[feature] > 0]


def _times(log2_ratio: float) -> str:
    times = 2.0 ** abs(log2_ratio)
    size = f"{times:,.0f}" if times >= 10 else f"{times:.2g}"
    return f"{size} times {'more' if log2_ratio > 0 else 'less'}"
