"""From the pipeline's Parquet files to rows of results.duckdb: figures, texts, and labels by rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from neuroscope.examples import HALF_WINDOW, WINDOW
from neuroscope.labels import Label, LabelSet
from neuroscope.stats import CalibrationStats

ROWS_AT_ONCE = 1 << 16
"""Of windows whose tokens' texts are in memory one by one."""

FIGURES = ("firing_rate", "mean_firing", "variance_firing", "mean_all", "variance_all", "log_density")


def features_frame(stats: pl.DataFrame) -> pl.DataFrame:
    """`features` from stats.parquet; the formulas are CalibrationStats'."""
    parts = []
    for (_,), frame in (
        stats.sort("feature").partition_by("stratum", as_dict=True, maintain_order=True).items()
    ):
        figures = to_stats(frame)
        derived = {name: pl.Series(getattr(figures, name)).fill_nan(None) for name in FIGURES}
        kept = frame.select("feature", "stratum", "n_tokens", "n_fired", "max_activation", "histogram")
        parts.append(kept.with_columns(**derived))
    return pl.concat(parts)


def to_stats(frame: pl.DataFrame) -> CalibrationStats:
    """The statistics of one stratum's rows of stats.parquet, in order of feature."""
    n_fired, total, total_sq, maximum = (
        frame[name].to_numpy() for name in ("n_fired", "sum", "sum_sq", "max_activation")
    )
    return CalibrationStats.from_sums(int(frame["n_tokens"][0]), n_fired, total, total_sq, maximum)


def tokens_frame(tokens: Sequence[bytes]) -> pl.DataFrame:
    """`tokens` from the bytes each token adds to a text, by id."""
    texts = [token.decode("utf-8", "replace") for token in tokens]
    return pl.DataFrame({"token_id": range(len(texts)), "token": pl.Series(texts, dtype=pl.String)})


def examples_frame(examples: pl.DataFrame, tokens: Sequence[bytes]) -> pl.DataFrame:
    """`examples` from examples.parquet: nulls where windows end, and the texts of its three parts."""
    windows = examples["window"].to_numpy().reshape(-1, WINDOW)
    before, token, after = (
        _texts(part, tokens)
        for part in (windows[:, :HALF_WINDOW], windows[:, [HALF_WINDOW]], windows[:, HALF_WINDOW + 1 :])
    )
    return examples.with_columns(
        window=without_ends(examples["window"]),
        text_before=before,
        token=token,
        text_after=after,
    )


def without_ends(windows: pl.Series) -> pl.Series:
    """Windows with null instead of -1."""
    ids = windows.to_numpy().reshape(-1)
    flat = pl.Series(ids)
    return flat.set(flat < 0, None).reshape((-1, WINDOW))


def _texts(ids: np.ndarray[Any, np.dtype[np.int32]], tokens: Sequence[bytes]) -> pl.Series:
    """Text of each row of ids [n, k], -1 skipped. Bytes are joined first: a character may span tokens."""
    table = [*tokens, b""]  # the last is reached by -1
    texts = pl.Series([token.decode("utf-8", "replace") for token in table], dtype=pl.String)
    is_piece = np.array([not _is_text(token) for token in table])
    parts = [pl.Series(dtype=pl.String)]
    for start in range(0, len(ids), ROWS_AT_ONCE):
        rows = ids[start : start + ROWS_AT_ONCE]
        flat = np.where(rows < 0, len(tokens), rows).ravel()
        joined = texts.gather(flat).reshape((-1, ids.shape[1])).arr.join("")
        split = np.flatnonzero(is_piece[rows].any(axis=1))
        whole = [b"".join([table[i] for i in row]).decode("utf-8", "replace") for row in rows[split].tolist()]
        parts.append(joined.scatter(split, pl.Series(whole, dtype=pl.String)))
    return pl.concat(parts)


def _is_text(token: bytes) -> bool:
    """Whether its bytes are whole characters, so that its text is the same beside any others."""
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def labels_frame(
    labels: Sequence[Label],
    scores: pl.DataFrame | None,
    priority: Sequence[str],
    *,
    min_score: float,
    replace_low: bool,
) -> pl.DataFrame:
    """`labels` with their rank: 1 for the one that `LabelSet.best` chooses, then by priority.

    A feature whose every label was refused for its score has no rank 1: it is shown by its number.
    """
    score_of = scores_by_label(scores)
    best = LabelSet(tuple(labels)).best(priority, score_of, min_score, replace_low).by_feature
    place = {source: number for number, source in enumerate(priority)}
    rows = []
    rank: dict[int, int] = {}
    for label in sorted(labels, key=lambda label: (label.feature, place.get(label.source, len(place)))):
        chosen = best.get(label.feature)
        if chosen is not None and (label.source, label.label) == (chosen.source, chosen.label):
            rows.append((chosen, 1))
            del best[label.feature]
        else:
            rank[label.feature] = rank.get(label.feature, 1) + 1
            rows.append((label, rank[label.feature]))
    columns = ("feature", "source", "label", "confidence", "model", "method", "created_at")
    types = {name: pl.Int32 if name == "feature" else pl.String for name in columns}
    frame = pl.DataFrame(
        [tuple(_clean(getattr(label, name)) for name in columns) for label, _ in rows],
        schema=types,
        orient="row",
    )
    return frame.with_columns(rank=pl.Series([number for _, number in rows], dtype=pl.Int32))


def _clean(value: Any) -> Any:
    """Texts without lone surrogates, which no UTF-8 file can hold."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def scores_by_label(scores: pl.DataFrame | None) -> dict[tuple[int, str], float]:
    """Balanced accuracy by (feature, source): the first method's, as the view shows it."""
    if scores is None:
        return {}
    first = scores.sort("feature", "source", "method").unique(["feature", "source"], keep="first")
    known = first.drop_nulls("balanced_accuracy").select("feature", "source", "balanced_accuracy")
    return {(feature, source): value for feature, source, value in known.iter_rows()}


def meta_frame(entries: Mapping[str, Any]) -> pl.DataFrame:
    """`meta`: each value as JSON text, in ASCII so that no lone surrogate reaches the database."""
    values = [json.dumps(value, sort_keys=True, allow_nan=False) for value in entries.values()]
    return pl.DataFrame(
        {"key": list(entries), "value": values}, schema={"key": pl.String, "value": pl.String}
    )
