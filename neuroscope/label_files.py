"""Rows of the files that labels are read from, and CSV that is safe in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope.errors import ArtefactError

Row = dict[str, Any]

TEXTS = ("source", "label", "confidence", "model", "method", "created_at")
COLUMNS = ("feature", *TEXTS, "score")
"""What a row may have; `score` is the label's balanced accuracy."""

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Beginnings of a cell that a spreadsheet computes, or may after dropping a blank."""
GUARD = "'"
"""Put before such a cell: a spreadsheet then takes it for text."""


def read_rows(path: Path, source: str | None = None) -> list[Row]:
    """The rows of a Parquet file, a CSV, a list of records in JSON, or a labels.json (a map from index to label).

    Where the file names no source it is `source`, by default the file's stem. Raises ArtefactError when the
    file is missing, is none of these, or has a row that is no label.
    """
    if not path.is_file():
        raise ArtefactError(f"There are no labels at {path}. Make them with `neuroscope labels generate`.")
    named = source or path.stem
    if path.suffix == ".json":
        return _from_json(path, named)
    if path.suffix == ".csv":
        return _from_csv(path, named)
    return _from_parquet(path, named)


def states_beside(labels: Iterable[Path]) -> list[Path]:
    """The files that say how features fared with the labelers of `labels`, where there are any."""
    paths = [path.with_name(f"{path.stem}.states.parquet") for path in labels]
    return [path for path in paths if path.is_file()]


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    """Rows as CSV, a header first. A cell that a spreadsheet would compute has `GUARD` before it."""
    written = io.StringIO(newline="")
    plain = csv.writer(written, lineterminator="\n")
    quoted = csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(columns)
    for row in rows:
        cells = [_guarded(row[column]) for column in columns]
        # A carriage return needs quotes too, which the csv module gives only to the end of line it writes.
        writer = quoted if any(isinstance(cell, str) and "\r" in cell for cell in cells) else plain
        writer.writerow(cells)
    return written.getvalue()


def _guarded(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    # A text that has the guard of its own gets another one, so that reading takes away what writing gave.
    return (
        GUARD + cell if cell.startswith((*FORMULA, *(GUARD + start for start in (*FORMULA, GUARD)))) else cell
    )


def _unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith(tuple(GUARD + start for start in (*FORMULA, GUARD))) else cell


def _from_csv(path: Path, source: str) -> list[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, strict=True)
            _need(path, reader.fieldnames or (), ("feature", "label"))
            rows = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise ArtefactError(f"{path} is not a readable CSV file of labels: {error}") from error
    found = []
    for number, row in enumerate(rows, 1):
        cells = {name: _unguarded(cell) for name, cell in row.items() if name in COLUMNS and cell}
        feature, score = cells.pop("feature", ""), cells.pop("score", None)
        figures = {
            "feature": int(feature) if feature.isascii() and feature.isdigit() else feature,
            "score": None if score is None else _float(score),
        }
        found.append(_checked(path, number, {**cells, **figures}, source))
    return found


def _float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _from_json(path: Path, source: str) -> list[Row]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ArtefactError(f"{path} is not a readable JSON file of labels: {error}") from error
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return [_checked(path, number, row, source) for number, row in enumerate(content, 1)]
    if isinstance(content, dict) and isinstance(content.get("labels"), dict):
        content = content["labels"]
    if not isinstance(content, dict):
        raise ArtefactError(f'{path} must map feature indices to labels, like {{"4521": "greeting"}}.')
    for key, text in content.items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and isinstance(text, str)):
            raise ArtefactError(f"{path} maps {key!r} to {text!r}; a feature index and a text are expected.")
    return [{"feature": int(key), "source": source, "label": text} for key, text in content.items()]


def _from_parquet(path: Path, source: str) -> list[Row]:
    try:
        frame = pl.read_parquet(path.read_bytes())  # a file that is cut while it is mapped ends the process
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ArtefactError(
            f"{path} is not a readable Parquet file of labels: {error}. Others end in .json or .csv."
        ) from error
    _need(path, frame.columns, ("feature", "label"))
    rows = frame.select([name for name in COLUMNS if name in frame.columns]).iter_rows(named=True)
    return [_checked(path, number, row, source) for number, row in enumerate(rows, 1)]


def _need(path: Path, columns: Sequence[str], needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in columns]:
        raise ArtefactError(f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(columns)}.")


def _checked(path: Path, number: int, row: Mapping[str, Any], source: str) -> Row:
    """A row with known columns of the right types. Raises ArtefactError that names the row and the column."""
    found = {name: row[name] for name in COLUMNS if row.get(name) is not None}
    found.setdefault("source", source)
    wrong = [name for name in ("label", *found) if not _is_right(name, found.get(name))]
    if "feature" not in found or wrong:
        name = wrong[0] if wrong else "feature"
        kind = {"feature": "a number from 0", "score": "a number from 0 to 1"}.get(name, "a text")
        raise ArtefactError(f"{path}, label {number}: {name} is {row.get(name)!r}; {kind} is expected.")
    return found


def _is_right(column: str, value: Any) -> bool:
    if column in TEXTS:
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if column == "feature":
        return isinstance(value, int) and value >= 0
    return isinstance(value, int | float) and 0 <= value <= 1
