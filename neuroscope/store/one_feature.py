"""One feature's row of the view `feature`, put together in memory from its rows of the tables that the view joins.

Through the view DuckDB ranks every score of the database for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuroscope.store.schema import TABLES

ORDERS = {table.name: table.order[1:] for table in TABLES if table.order[0] == "feature"}
"""By which columns the rows of one feature are ordered."""
OF_A_STRATUM = (
    "stratum",
    "n_tokens",
    "n_fired",
    "firing_rate",
    "mean_firing",
    "variance_firing",
    "mean_all",
    "variance_all",
    "max_activation",
)
FIRING = (
    "firing_rate",
    "mean_firing",
    "variance_firing",
    "max_activation",
    "n_fired",
    "n_tokens",
    "log_density",
)


def shown_row(
    index: int,
    of_all: Mapping[str, Any],
    labels: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The row of the view `feature`, from the feature's rows of the three tables that it joins."""
    label = next(
        (row for row in labels if row["rank"] == 1), dict.fromkeys(("label", "source", "confidence"))
    )
    score = next(
        (row for row in scores if row["source"] == label["source"]),
        dict.fromkeys(("balanced_accuracy", "low", "high", "method")),
    )
    return {
        "feature": index,
        "label": f"feature_{index}" if label["label"] is None else label["label"],
        "source": label["source"],
        "confidence": label["confidence"],
        "balanced_accuracy": score["balanced_accuracy"],
        **{name: of_all[name] for name in FIRING},
        "low": score["low"],
        "high": score["high"],
        "score_method": score["method"],
    }
