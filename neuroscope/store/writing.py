"""Writes results.duckdb: built beside its place, checked, and renamed into it whole.

Readers of an earlier file keep it: the name moves to the new one, the old bytes live as long as somebody
reads them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from neuroscope.errors import ArtefactError, made_anew
from neuroscope.labels import PRIORITY, Label
from neuroscope.manifest import Fingerprint, Manifest
from neuroscope.sources import replace_atomically
from neuroscope.stats import HISTOGRAM_EDGES
from neuroscope.store import frames
from neuroscope.store.checks import write_ahead_log
from neuroscope.store.connect import attach_for_writing, attach_read_only, quote
from neuroscope.store.schema import FEATURE_VIEW, FEATURE_VIEW_COMMENT, SCHEMA_VERSION, TABLES, Table

MEMORY_LIMIT = "1GB"

Rows = Path | pl.DataFrame
"""A Parquet file or what is in one."""


def build(
    path: Path,
    *,
    fingerprint: Fingerprint,
    stats: Rows,
    examples: Rows,
    tokens: Sequence[bytes],
    labels: Sequence[Label] = (),
    label_states: Rows | None = None,
    scores: Rows | None = None,
    logits: Rows | None = None,
    neighbours: Rows | None = None,
    priority: Sequence[str] = PRIORITY,
    min_score: float = 0.6,
    replace_low: bool = False,
    report: Mapping[str, Any] | None = None,
    siblings: Mapping[str, int | None] | None = None,
) -> dict[str, int]:
    """Build the database at `path` and manifest.json beside it; returns the rows of each table.

    `stats` and `examples` are the merge's, `tokens` the bytes each token id adds to a text, `report` the
    content of sweep.json. `siblings` are further files of the folder that the manifest vouches for, with
    their rows. Raises ArtefactError when a label or score names a feature the SAE does not have.
    """
    score_rows = None if scores is None else _read(scores)
    given = {
        "meta": frames.meta_frame(_meta(fingerprint, priority, report)),
        "tokens": frames.tokens_frame(tokens),
        "features": frames.features_frame(_read(stats)),
        "examples": frames.examples_frame(_read(examples), tokens),
        "labels": frames.labels_frame(
            labels, score_rows, priority, min_score=min_score, replace_low=replace_low
        ),
        "label_states": None if label_states is None else _read(label_states),
        "scores": score_rows,
        "logits": None if logits is None else _read(logits),
        "neighbours": None if neighbours is None else _read(neighbours),
    }
    _check_features(given, fingerprint.d_sae)
    counts = {name: 0 if frame is None else frame.height for name, frame in given.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent) as folder,
        replace_atomically(path) as temporary,
    ):
        database = Path(folder) / path.name
        _write(database, given)
        _check(database, counts)
        write_ahead_log(path).unlink(missing_ok=True)  # of the file that is replaced; DuckDB would replay it
        database.replace(temporary)
    rows = {path.name: sum(counts.values()), **(siblings or {})}
    Manifest.of(path.parent, fingerprint, rows).write(path.parent / "manifest.json")
    return counts


def _read(rows: Rows) -> pl.DataFrame:
    if isinstance(rows, pl.DataFrame):
        return rows
    try:
        return pl.read_parquet(rows)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ArtefactError(f"{rows} cannot be read: {error}. {made_anew()}") from error


def _meta(
    fingerprint: Fingerprint, priority: Sequence[str], report: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint.to_dict(),
        "histogram_edges": HISTOGRAM_EDGES.tolist(),
        "label_priority": list(priority),
        "schema_version": SCHEMA_VERSION,
        "sweep": None if report is None else dict(report),
    }


def _check_features(given: Mapping[str, pl.DataFrame | None], d_sae: int) -> None:
    for name, frame in given.items():
        if frame is None or "feature" not in frame.columns or frame.is_empty():
            continue
        features = frame["feature"].to_numpy()
        if features.min() < 0 or features.max() >= d_sae:
            raise ArtefactError(
                f"The {name} are about features {features.min()} to {features.max()}; this SAE has {d_sae}. "
                f"The file belongs to another SAE. {made_anew()}"
            )


def _write(database: Path, given: Mapping[str, pl.DataFrame | None]) -> None:
    connection = attach_for_writing(database)
    try:
        for table in TABLES:
            create_table(connection, table)
            frame = given[table.name]
            if frame is not None:
                insert_rows(connection, table, frame, database.with_name(f"{table.name}.parquet"))
        connection.execute(FEATURE_VIEW)
        connection.execute(f"COMMENT ON VIEW feature IS {quote(FEATURE_VIEW_COMMENT)}")
        connection.execute("CHECKPOINT results")
        connection.execute("USE memory")
        connection.execute("DETACH results")
    finally:
        connection.close()


def create_table(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    """An empty table with its comments."""
    columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
    connection.execute(f"CREATE TABLE {table.name} ({columns})")
    connection.execute(f"COMMENT ON TABLE {table.name} IS {quote(table.comment)}")
    for column in table.columns:
        connection.execute(f'COMMENT ON COLUMN {table.name}."{column.name}" IS {quote(column.comment)}')


def insert_rows(
    connection: duckdb.DuckDBPyConnection, table: Table, frame: pl.DataFrame, parquet: Path
) -> None:
    """Bulk-load through a Parquet file: DuckDB reads Polars' own memory only where pyarrow is installed."""
    known = [column.name for column in table.columns if column.name in frame.columns]
    _in_order(frame.select(known), table.order).write_parquet(parquet, compression="lz4")
    names = ", ".join(f'"{name}"' for name in known)
    connection.execute(
        f"INSERT INTO {table.name} ({names}) SELECT {names} FROM read_parquet({quote(str(parquet))})"
    )
    parquet.unlink()


def _in_order(frame: pl.DataFrame, order: Sequence[str]) -> pl.DataFrame:
    """Sorted here: DuckDB would copy every row, texts and windows too, into memory of its own for it."""
    names, downwards = zip(
        *((name.removesuffix(" DESC"), name.endswith(" DESC")) for name in order), strict=True
    )
    return frame.sort(names, descending=downwards, nulls_last=True, maintain_order=True)


def _check(database: Path, counts: Mapping[str, int]) -> None:
    """The file as a reader will see it: closed, and with every row. Raises ArtefactError otherwise."""
    if write_ahead_log(database).exists():
        raise ArtefactError(f"{database} was not written to its end: is the disk full?")
    connection = attach_read_only(database, MEMORY_LIMIT)
    try:
        for name, expected in counts.items():
            found = connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            if found != expected:
                raise ArtefactError(
                    f"{database}: table {name} has {found} rows, {expected} were written. Is the disk full?"
                )
    finally:
        connection.close()
