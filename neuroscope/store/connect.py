"""Connections to a results database: for a writer, and for readers that may touch nothing else.

Readers attach the file to an in-memory database of their own: `duckdb.connect(path)` shares one instance
per path within a process, so that after the file was replaced a new reader would still see the old one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb

from neuroscope.errors import ArtefactError, made_anew
from neuroscope.store.schema import STORAGE_VERSION

LOCKED = "Could not set lock on file"
"""How DuckDB's message begins that another process has the file."""

USE = "USE results"
"""Makes the attached file the default database of a connection, and not of its cursors."""


def attach_read_only(
    path: Path, memory_limit: str, at_last: Callable[[], None] = lambda: None
) -> duckdb.DuckDBPyConnection:
    """A locked-down connection whose default database is the file at `path`.

    `at_last` is called right before the file is opened, and may raise: DuckDB would wait for ever on a pipe that
    has taken the file's place since it was looked at.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "threads": 1,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    connection = duckdb.connect(config=config)
    try:
        at_last()
        connection.execute(f"ATTACH {quote(str(path))} AS results (READ_ONLY)")
        connection.execute(USE)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except ArtefactError:
        connection.close()
        raise
    except duckdb.Error as error:
        connection.close()
        if LOCKED in str(error):
            raise ArtefactError(
                f"{path} is open for writing in another program ({_holder(str(error))}). Close it there."
            ) from error
        raise ArtefactError(
            f"{path} cannot be opened as a results database: {error}. {made_anew()}"
        ) from error
    return connection


def attach_for_writing(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection whose default database is a new file at `path`, in a storage format old clients read."""
    connection = duckdb.connect()
    connection.execute(f"ATTACH {quote(str(path))} AS results (STORAGE_VERSION '{STORAGE_VERSION}')")
    connection.execute(USE)
    return connection


def _holder(message: str) -> str:
    """`PID 123` from DuckDB's message."""
    found = re.search(r"PID \d+", message)
    return found[0] if found else "not on this machine"


def quote(text: str) -> str:
    """`text` as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
