"""Neuronpedia's rows about whole features: how often each fires, how strongly, and the tokens that it promotes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import polars as pl

from neuroscope.imported import SOURCE
from neuroscope.neuronpedia.rows import Row, Tally, clean

TOP = 10
"""Tokens of each kind that are kept, as many as our own logits have."""

PRIOR_SCHEMA = {"feature": pl.Int32, "firing_rate": pl.Float64, "max_activation": pl.Float64}
LOGITS_SCHEMA = {
    "feature": pl.Int32,
    "kind": pl.String,
    "rank": pl.Int32,
    "token_id": pl.Int32,
    "token": pl.String,
    "weight": pl.Float32,
    "source": pl.String,
}


def to_frames(rows: Iterable[tuple[int, Row]], tally: Tally) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The prior (PRIOR_SCHEMA, one row a feature) and the logits (LOGITS_SCHEMA; tokens come as text, without ids)."""
    prior: dict[int, tuple[int, float | None, float | None]] = {}
    logits: list[tuple[Any, ...]] = []
    for feature, row in rows:
        if feature in prior:
            tally.refused["a feature a second time"] += 1
            continue
        rate, largest = _number(row.get("frac_nonzero")), _number(row.get("maxActApprox"))
        if rate is not None and not 0 <= rate <= 1:
            rate = None
        if rate is None:
            tally.refused["frac_nonzero is no share from 0 to 1"] += 1
        if largest is None or largest < 0:
            largest = None
            tally.refused["maxActApprox is no activation"] += 1
        prior[feature] = (feature, rate, largest)
        for kind, side, sign in (("promoted", "pos", -1), ("suppressed", "neg", 1)):
            logits += _logits(feature, kind, row.get(f"{side}_str"), row.get(f"{side}_values"), sign, tally)
    return (
        pl.DataFrame(sorted(prior.values()), schema=PRIOR_SCHEMA, orient="row"),
        pl.DataFrame(logits, schema=LOGITS_SCHEMA, orient="row").sort("feature", "kind", "rank"),
    )


def _logits(
    feature: int, kind: str, tokens: Any, weights: Any, sign: int, tally: Tally
) -> list[tuple[Any, ...]]:
    """One kind of a feature's tokens, strongest first."""
    if tokens is None and weights is None:
        return []
    if not isinstance(tokens, list) or not isinstance(weights, list) or len(tokens) != len(weights):
        tally.refused["tokens and weights that are no pairs"] += 1
        return []
    pairs = [
        (value, clean(token).replace("▁", " "))
        for token, weight in zip(tokens, weights, strict=True)
        if isinstance(token, str) and (value := _number(weight)) is not None
    ]
    tally.refused["tokens without a weight"] += len(tokens) - len(pairs)
    pairs.sort(key=lambda pair: sign * pair[0])
    return [
        (feature, kind, rank, None, token, weight, SOURCE) for rank, (weight, token) in enumerate(pairs[:TOP])
    ]


def _number(value: Any) -> float | None:
    """A finite number, else None: Python's JSON reads NaN and Infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
