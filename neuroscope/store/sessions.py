"""sessions.duckdb: recorded generations as rows, made from their files and brought up to date with them.

The new state is written into a copy and renamed into place: a reader keeps the file it has opened, and a process
that is killed leaves the old one. What is behind, damaged or of another version is made anew or completed at the next
call; nothing is ever only here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl

from neuroscope.errors import ArtefactError
from neuroscope.recording import Recording
from neuroscope.sources import replace_atomically
from neuroscope.store.checks import write_ahead_log
from neuroscope.store.connect import attach_for_writing, attach_read_only
from neuroscope.store.session_schema import ACTIVATIONS, SESSION_TABLES, SESSIONS, SESSIONS_VERSION, TOKENS
from neuroscope.store.writing import MEMORY_LIMIT, create_table, insert_rows

_TYPES = {
    "INTEGER": pl.Int32,
    "BIGINT": pl.Int64,
    "DOUBLE": pl.Float64,
    "FLOAT": pl.Float32,
    "VARCHAR": pl.String,
}

Row = dict[str, Any]


class FileState(NamedTuple):
    """By which a changed file is known."""

    file_bytes: int
    file_changed_ns: int


def session_rows(path: Path) -> dict[str, Row] | None:
    """The rows of `sessions` by id; None where the database is missing, damaged or of another version."""
    if not path.is_file() or write_ahead_log(path).exists():
        return None
    try:
        connection = attach_read_only(path, MEMORY_LIMIT)
    except ArtefactError:
        return None
    try:
        if connection.execute("SELECT version FROM version").fetchall() != [(SESSIONS_VERSION,)]:
            return None
        names = [column.name for column in SESSIONS.columns]
        found = connection.execute(f"SELECT {', '.join(names)} FROM sessions").fetchall()
    except duckdb.Error:
        return None
    finally:
        connection.close()
    return {row[0]: dict(zip(names, row, strict=True)) for row in found}


def summary(recording: Recording, state: FileState) -> Row:
    """A recording's row of `sessions`."""
    own = {column.name: getattr(recording, column.name, None) for column in SESSIONS.columns}
    return {**own, "session": recording.id, "prompt_tokens": len(recording.prompt), **state._asdict()}


def bring_up_to_date(
    path: Path, files: Mapping[str, FileState], read: Callable[[str], Recording | None]
) -> int:
    """Make the database at `path` hold the recordings `files`, each in that state; returns how many it read.

    `read` gives a recording by its id, None for one that cannot be read. Raises what the disk refuses.
    """
    rows = session_rows(path)
    held = {name: FileState(row["file_bytes"], row["file_changed_ns"]) for name, row in (rows or {}).items()}
    stale = {name for name, state in held.items() if files.get(name) != state}
    new = [name for name, state in files.items() if held.get(name) != state]
    found = {name: recording for name in new if (recording := read(name)) is not None}
    if rows is not None and not stale and not found:
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent) as folder,
        replace_atomically(path) as temporary,
    ):
        database = Path(folder) / path.name
        if rows is not None:
            shutil.copyfile(path, database)
        _write(database, stale, [(found[name], files[name]) for name in found], is_new=rows is None)
        if (session_rows(database) or {}).keys() != (held.keys() - stale) | found.keys():
            raise ArtefactError(f"{path} was not written to its end: is the disk full?")
        write_ahead_log(path).unlink(missing_ok=True)  # of the file that is replaced
        database.replace(temporary)
    return len(found)


def _write(
    database: Path, stale: Collection[str], new: Iterable[tuple[Recording, FileState]], *, is_new: bool
) -> None:
    connection = attach_for_writing(database)
    try:
        if is_new:
            for table in SESSION_TABLES:
                create_table(connection, table)
            connection.execute(f"INSERT INTO version VALUES ({SESSIONS_VERSION})")
        for table in (SESSIONS, TOKENS, ACTIVATIONS) if stale else ():
            connection.execute(f"DELETE FROM {table.name} WHERE session IN (SELECT unnest(?))", [list(stale)])
        for recording, state in new:
            for table, rows in (
                (SESSIONS, [tuple(summary(recording, state).values())]),
                (TOKENS, _tokens(recording)),
                (ACTIVATIONS, _activations(recording)),
            ):
                schema = {column.name: _TYPES[column.type] for column in table.columns}
                frame = pl.DataFrame(rows, schema=schema, orient="row")
                insert_rows(connection, table, frame, database.with_name(f"{table.name}.parquet"))
        connection.execute("CHECKPOINT results")
        connection.execute("USE memory")
        connection.execute("DETACH results")
    finally:
        connection.close()


def _placed(recording: Recording) -> Iterable[tuple[str, int, Row]]:
    for place, rows in (("prompt", recording.prompt), ("answer", recording.tokens)):
        for index, row in enumerate(rows):
            yield place, index, row


def _tokens(recording: Recording) -> list[tuple[Any, ...]]:
    return [
        (recording.id, place, index, row["position"], row["token_id"], row["token"], row["l0"], row["fvu"])
        for place, index, row in _placed(recording)
    ]


def _activations(recording: Recording) -> list[tuple[Any, ...]]:
    labels = {int(index): row["label"] for index, row in recording.features.items()}
    return [
        (recording.id, place, index, feature, labels[feature], activation, surprise)
        for place, index, row in _placed(recording)
        for feature, activation, surprise in row["top_features"]
    ]
