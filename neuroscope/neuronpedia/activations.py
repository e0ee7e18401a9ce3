"""Neuronpedia's examples: texts as token strings with a feature's activation on each. The strongest few are kept."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from neuroscope.neuronpedia.rows import Row, Tally, clean

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "feature": pl.Int32,
    "rank": pl.Int32,
    "activation": pl.Float32,
    "peak": pl.Int32,
    "tokens": pl.List(pl.String),
    "values": pl.List(pl.Float32),
}
"""`activation` is the largest of `values`, on token number `peak`."""
AGREEMENT = 0.01
"""Relative difference of maxValue and the value at maxValueTokenIndex that rounding explains."""
LARGEST = 3e38
PART = 4096
"""Rows that are held as Python objects at once."""


def strongest(rows: Iterable[tuple[int, Row]], per_feature: int, tally: Tally) -> pl.DataFrame:
    """The `per_feature` examples of each feature with the largest activation, strongest first (SCHEMA)."""
    kept: list[pl.DataFrame] = []
    part: list[tuple[Any, ...]] = []
    best: dict[int, list[float]] = defaultdict(list)  # feature -> its largest activations so far, ascending
    for feature, row in rows:
        if len(best[feature]) == per_feature and not _exceeds(row, best[feature][0]):
            continue
        if (fault := _fault(row)) is not None:
            tally.refused[fault] += 1
            continue
        part.append(_example(feature, row))
        insort(best[feature], row["maxValue"])
        del best[feature][:-per_feature]
        if len(part) == PART:
            kept.append(_top(_frame(part), per_feature))
            part = []
    return _top(pl.concat([*kept, _frame(part)]), per_feature)


def _exceeds(row: Row, least: float) -> bool:
    """Whether a row may be among the strongest; what is wrong with the others does not matter."""
    largest = row.get("maxValue")
    return not _is_number(largest) or bool(largest is not None and largest > least)


def _frame(part: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(part, schema=SCHEMA, orient="row")


def _top(examples: pl.DataFrame, per_feature: int) -> pl.DataFrame:
    order = examples.sort("feature", "activation", descending=[False, True], maintain_order=True)
    ranked = order.with_columns(rank=pl.int_range(pl.len(), dtype=pl.Int32).over("feature"))
    return ranked.filter(pl.col("rank") < per_feature)


def _example(feature: int, row: Row) -> tuple[Any, ...]:
    tokens, values = [clean(token) for token in row["tokens"]], [float(value) for value in row["values"]]
    return feature, 0, float(row["maxValue"]), row["maxValueTokenIndex"], tokens, values


def _fault(row: Row) -> str | None:
    """Why a row is no example, or None when it is one."""
    tokens, values = row.get("tokens"), row.get("values")
    peak, largest = row.get("maxValueTokenIndex"), row.get("maxValue")
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        return "tokens and values that are no pairs"
    if not all(isinstance(token, str) for token in tokens) or not all(map(_is_number, [*values, largest])):
        return "a token that is no text, or an activation that is no number"
    if not isinstance(peak, int) or isinstance(peak, bool) or not 0 <= peak < len(tokens):
        return "a peak that is not in the text"
    assert largest is not None
    if largest <= 0:
        return "the feature is silent"
    if abs(values[peak] - largest) > AGREEMENT * largest:
        return "maxValue is not the value at maxValueTokenIndex"
    return None


def _is_number(value: Any) -> bool:
    """A finite float32: Python's JSON reads NaN and Infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
