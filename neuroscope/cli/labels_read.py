"""Labels of the results with their scores, as `labels export` and `labels diff` take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroscope.errors import LabelError

if TYPE_CHECKING:
    from neuroscope.label_export import Scored
    from neuroscope.store import Results


def scored_labels(results: Results, *, shown_only: bool = False) -> list[Scored]:
    """Every label, or with `shown_only` the one that is shown for each feature, by feature and rank."""
    from neuroscope.label_export import Scored
    from neuroscope.labels import of_row

    rows = results.all_labels()
    return [Scored(of_row(row), row["score"]) for row in rows if row["rank"] == 1 or not shown_only]


def labels_of_source(results: Results, source: str) -> list[Scored]:
    """Every label of a source. Raises LabelError that names the sources there are."""
    if source not in (counts := results.label_counts()):
        there = ", ".join(f"{name} ({count:,})" for name, count in counts.items())
        raise LabelError(f"The results hold no labels of {source!r}. Choose one of: {there}.")
    return [scored for scored in scored_labels(results) if scored.label.source == source]
