"""`neuroscope labels diff`: where two sources, or two files, call features differently, and which is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import as_json, overrides, with_pairing
from neuroscope.cli.labels_read import labels_of_source
from neuroscope.cli.output import show, show_record
from neuroscope.cli.results import need_labels, open_own_results
from neuroscope.cli.terminal import clip, columns_here, echo, visible
from neuroscope.errors import ArtefactError, LabelError

if TYPE_CHECKING:
    from neuroscope.label_export import Scored
    from neuroscope.settings import Settings

FIGURES = 44
"""Columns that the table takes for everything but the labels."""

Row = dict[str, Any]


@click.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Rows to show.")
@with_pairing
@as_json
def diff_labels(first: str, second: str, limit: int, as_json: bool, **flags: Any) -> None:
    """Where two sources, or two files, label features differently.

    A and B are each a source of the results (claude, neuronpedia, tokens) or a file, such as ./labels.json. Those
    whose scores lie furthest apart come first. Where a source has several labels for a feature, its first one counts.
    """
    from neuroscope import settings

    settled = settings.load(overrides=overrides(flags))
    one, other = (_by_feature(_labels(name, settled)) for name in (first, second))
    counts, rows = _summary(one, other), _differing(one, other)[:limit]
    names = {"a": first, "b": second}
    if as_json:
        show_record({**names, **counts, "rows": rows}, as_json=True)
        return
    show_record({**{name: visible(text) for name, text in names.items()}, **counts}, as_json=False)
    if rows:
        echo("")
        room = max(10, (columns_here() - FIGURES) // 2)
        show([_clipped(row, room) for row in rows], as_json=False)


def _labels(name: str, settings: Settings) -> list[Scored]:
    """The labels of a source, or else of a file. A file beside a source of its name is ./name."""
    from neuroscope.label_export import read_scored

    is_file = Path(name).is_file()
    try:
        with open_own_results(settings) as results:
            if not is_file:
                need_labels(results, settings)
            if not is_file or name in results.label_counts():
                return labels_of_source(results, name)
    except ArtefactError:
        # Files can be compared before there are results; a source cannot.
        if not is_file:
            raise
    except LabelError as error:
        raise LabelError(f"{error} There is no file {name} either.") from error
    return read_scored(Path(name))


def _by_feature(labels: Sequence[Scored]) -> dict[int, Scored]:
    found: dict[int, Scored] = {}
    for scored in labels:
        found.setdefault(scored.label.feature, scored)
    return found


def _summary(one: Mapping[int, Scored], other: Mapping[int, Scored]) -> Row:
    both = sorted(one.keys() & other.keys())
    same = sum(one[feature].label.label == other[feature].label.label for feature in both)
    scores = [
        (a, b)
        for a, b in ((one[feature].score, other[feature].score) for feature in both)
        if a is not None and b is not None
    ]
    return {
        "only_a": len(one.keys() - other.keys()),
        "only_b": len(other.keys() - one.keys()),
        "same": same,
        "different": len(both) - same,
        "both_scored": len(scores),
        "mean_score_a": sum(a for a, _ in scores) / len(scores) if scores else None,
        "mean_score_b": sum(b for _, b in scores) / len(scores) if scores else None,
    }


def _differing(one: Mapping[int, Scored], other: Mapping[int, Scored]) -> list[Row]:
    """Features with two different labels: by the difference of the scores, then those without, by index."""
    rows = [
        _row(feature, one[feature], other[feature])
        for feature in sorted(one.keys() & other.keys())
        if one[feature].label.label != other[feature].label.label
    ]
    return sorted(
        rows, key=lambda row: -1.0 if row["difference"] is None else abs(row["difference"]), reverse=True
    )


def _row(feature: int, a: Scored, b: Scored) -> Row:
    return {
        "feature": feature,
        "label_a": a.label.label,
        "score_a": a.score,
        "label_b": b.label.label,
        "score_b": b.score,
        "difference": None if a.score is None or b.score is None else b.score - a.score,
    }


def _clipped(row: Row, room: int) -> Row:
    return {**row, **{name: clip(visible(row[name]), room) for name in ("label_a", "label_b")}}
