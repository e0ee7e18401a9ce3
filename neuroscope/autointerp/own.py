"""Labels that the user has, from a file: checked like any model's, since they end on the same pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from neuroscope.autointerp.evidence import read_firing_rates
from neuroscope.autointerp.labeler import LabelResult
from neuroscope.autointerp.outcome import LabelCounts, Made
from neuroscope.errors import ArtefactError, LabelError
from neuroscope.labels import CONFIDENCES, read_labels, validate

SOURCE = "file"
Row = tuple[int, str, str | None]
"""Feature, label, confidence."""


def take_own_labels(path: Path, *, stats: Path, out: Path, states: Path) -> LabelCounts:
    """Takes the labels of `path` for the features of `stats`.

    A .json maps features to labels; a .csv or .parquet has the columns feature and label, and may have confidence.
    A label that may not be shown is counted as invalid and left out. Raises ArtefactError for another file, and for
    one about features that this SAE does not have.
    """
    rows = sorted(_rows(path))
    known = read_firing_rates(stats)
    features = [feature for feature, _, _ in rows]
    if beyond := [feature for feature in features if feature not in known]:
        raise ArtefactError(
            f"{path} names feature {beyond[0]}; this SAE has features 0 to {len(known) - 1}. It belongs to "
            "another SAE: set labels.file to labels of this one."
        )
    if twice := [one for one, other in itertools.pairwise(features) if one == other]:
        raise ArtefactError(f"{path} names feature {twice[0]} twice. Leave one label for each feature.")
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    silent = dict.fromkeys(set(known) - set(features), "insufficient")
    made = Made(SOURCE, None, path.name, ((_result(*row), changed) for row in rows), silent)
    return made.write(out, states)


def _result(feature: int, text: str, confidence: str | None) -> LabelResult:
    try:
        label = validate(text)
    except LabelError as error:
        return LabelResult(feature, "invalid", pattern=str(error))
    return LabelResult(feature, "labelled", label, confidence if confidence in CONFIDENCES else None)


def _rows(path: Path) -> Iterator[Row]:
    if path.suffix == ".json":
        return ((label.feature, label.label, None) for label in read_labels(path, SOURCE).labels)
    return _rows_of_table(path)


def _rows_of_table(path: Path) -> Iterator[Row]:
    try:
        frame = pl.read_csv(path, infer_schema=False) if path.suffix == ".csv" else pl.read_parquet(path)
        if missing := [name for name in ("feature", "label") if name not in frame.columns]:
            raise ArtefactError(
                f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(frame.columns)}."
            )
        if "confidence" not in frame.columns:
            frame = frame.with_columns(confidence=pl.lit(None, pl.String))
        texts = (pl.col(name).cast(pl.String) for name in ("label", "confidence"))
        columns = frame.select(pl.col("feature").cast(pl.Int64), *texts)
        yield from columns.drop_nulls(["feature", "label"]).iter_rows()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ArtefactError(
            f"{path} is not a readable file of labels ({error}). Accepted: a .json that maps features to labels, or a "
            ".csv or .parquet with the columns feature and label."
        ) from error
