"""Labels with their scores, written for other programs: records as JSON, CSV or Parquet, and Neuronpedia's rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from neuroscope.label_files import COLUMNS, csv_text, read_rows
from neuroscope.labels import SCHEMA, Label, of_row
from neuroscope.sources import replace_atomically


class Scored(NamedTuple):
    """A label, and its balanced accuracy where somebody judged it."""

    label: Label
    score: float | None = None

    def row(self) -> dict[str, Any]:
        """Its columns, those of `label_files`."""
        fields = {name: getattr(self.label, name) for name in COLUMNS if name != "score"}
        return {**fields, "score": self.score}


def read_scored(path: Path, source: str | None = None) -> list[Scored]:
    """The labels of a file with their scores, where it has some; as `labels.read_labels`."""
    return [Scored(of_row(row), row.get("score")) for row in read_rows(path, source)]


def as_json(labels: Sequence[Scored]) -> str:
    """A list of records. `labels.read_labels` reads it back."""
    return json.dumps([scored.row() for scored in labels], indent=1, allow_nan=False) + "\n"


def as_csv(labels: Sequence[Scored]) -> str:
    """A row a label, safe to open in a spreadsheet. `labels.read_labels` reads it back."""
    return csv_text(scored.row() for scored in labels)


def as_neuronpedia(labels: Sequence[Scored], model_id: str, sae_id: str) -> str:
    """JSON lines with the fields of the explanations in Neuronpedia's bucket, and beside them source and score.

    A rule has no model: the source stands for it.
    """
    lines = []
    for label, score in labels:
        row = {
            "modelId": model_id,
            "layer": sae_id,
            "index": str(label.feature),
            "description": label.label,
            "typeName": label.method or label.source,
            "explanationModelName": label.model or label.source,
            "source": label.source,
        }
        row |= {"createdAt": label.created_at} if label.created_at is not None else {}
        lines.append(json.dumps(row if score is None else {**row, "score": score}, allow_nan=False))
    return "".join(f"{line}\n" for line in lines)


def write_parquet(path: Path, labels: Sequence[Scored]) -> None:
    """The columns of a file of labels, and the score. `labels.read_labels` reads it back."""
    schema = {**SCHEMA, "score": pl.Float64}
    frame = pl.DataFrame([scored.row() for scored in labels], schema=schema)
    with replace_atomically(path) as temporary:
        frame.write_parquet(temporary)


def write_text(path: Path, text: str) -> None:
    """`text` whole or not at all; compressed when the name ends in .gz, equal bytes for equal text."""
    content = text.encode("utf-8", "replace")
    with replace_atomically(path) as temporary:
        temporary.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
