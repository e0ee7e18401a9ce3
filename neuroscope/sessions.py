"""The recordings of a pairing: one file each in `sessions/` of its results, and rows in `sessions.duckdb` beside it.

The files are the truth. They are written first, whole or not at all; the database follows, and catches up the next
time where it could not.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neuroscope.disk import disk_failure
from neuroscope.errors import ArtefactError
from neuroscope.recording import IDENTIFIER, Recording, read_recording, write_recording
from neuroscope.sources.files import held

MAX_SESSIONS = 1000
"""More are refused: a button that is pressed by a program must not fill the disk."""
SUMMARY = (
    "created_at",
    "title",
    "model",
    "pairing",
    "layer",
    "sae_id",
    "completion_id",
    "finish_reason",
    "prompt_tokens",
    "total_tokens",
)
"""What a list says of a recording, beside its id, size and what is wrong with its file."""

_FILE = re.compile(rf"({IDENTIFIER.pattern})\.json")

Row = dict[str, Any]


class UnknownSessionError(ArtefactError):
    """There is no recording of this id."""


class TooManySessionsError(ArtefactError):
    """As many recordings are kept as may be."""


def new_id(now: datetime) -> str:
    """A name that sorts by time and that no two recordings share."""
    return f"{now.astimezone(UTC):%Y%m%dt%H%M%S}-{secrets.token_hex(4)}"


class Sessions:
    """The recordings below one pairing's `results`. Its calls wait for the disk."""

    def __init__(self, results: Path, *, limit: int = MAX_SESSIONS) -> None:
        self.folder = Path(results) / "sessions"
        self.database = Path(results) / "sessions.duckdb"
        self.limit = limit

    def path(self, name: str) -> Path:
        """Where the recording of this id lies, or would. Raises UnknownSessionError for what can be no id."""
        if not IDENTIFIER.fullmatch(name):
            raise UnknownSessionError(
                f"{name[:80]!r} is no session's id. List them with `neuroscope session list`."
            )
        return self.folder / f"{name}.json"

    def save(self, recording: Recording) -> list[str]:
        """Keep `recording` under its id; returns what went wrong afterwards, in sentences.

        Raises TooManySessionsError, and ArtefactError where the disk refuses or the id is taken.
        """
        path = self.path(recording.id)
        with self._refusals_told(), self._held():
            if len(self._files()) >= self.limit:
                raise TooManySessionsError(
                    f"{self.folder} holds {self.limit} recordings, as many as are kept. Delete some with "
                    "`neuroscope session delete ID`."
                )
            if os.path.lexists(path):
                raise ArtefactError(f"{path} is there already. Choose another id.")
            write_recording(path, recording)
            return self._follow()

    def read(self, name: str) -> Recording:
        """Raises UnknownSessionError, and ArtefactError for a damaged file."""
        path = self.path(name)
        if not os.path.lexists(path):
            raise UnknownSessionError(
                f"There is no session {name}. List them with `neuroscope session list`."
            )
        # The file's name is its id: a copy under another name is another session.
        return replace(read_recording(path), id=name)

    def delete(self, name: str) -> list[str]:
        """Raises UnknownSessionError, and ArtefactError where the disk refuses. Returns sentences as `save` does."""
        path = self.path(name)
        with self._refusals_told(), self._held():
            try:
                path.unlink()
            except FileNotFoundError as error:
                raise UnknownSessionError(
                    f"There is no session {name}. List them with `neuroscope session list`."
                ) from error
            return self._follow()

    def page(self, offset: int = 0, limit: int | None = None) -> tuple[int, list[Row]]:
        """How many recordings there are, and those asked for as rows, newest first.

        A file that cannot be read is a row too: its `error` says why. Raises ArtefactError for a folder that is none.
        """
        from neuroscope.store.sessions import session_rows

        known = session_rows(self.database) or {}
        with self._refusals_told():
            files = sorted(self._files().items(), reverse=True)
        rows = [self._row(name, state, known.get(name)) for name, state in files]
        rows.sort(key=lambda row: row["created_at"] or "", reverse=True)
        return len(rows), rows[offset : None if limit is None else offset + limit]

    def sync(self) -> list[str]:
        """Bring the database up to date with the files; returns what went wrong, in sentences."""
        if not self.folder.is_dir():
            return []
        try:
            with self._refusals_told(), self._held():
                return self._follow()
        except ArtefactError as error:
            return [str(error)]

    def _row(self, name: str, state: tuple[int, int], known: Row | None) -> Row:
        from neuroscope.store.sessions import FileState, summary

        row: Row = {"id": name, **dict.fromkeys(SUMMARY), "bytes": state[0], "error": None}
        if known is None or (known["file_bytes"], known["file_changed_ns"]) != state:
            try:
                known = summary(self.read(name), FileState(*state))
            except ArtefactError as error:
                return {**row, "error": str(error)}
        return {**row, **{key: known[key] for key in SUMMARY}}

    def _follow(self) -> list[str]:
        """The database after the files; a failure leaves it behind and is no failure of what was asked."""
        from neuroscope.store.sessions import FileState, bring_up_to_date

        said = []

        def read(name: str) -> Recording | None:
            try:
                return self.read(name)
            except ArtefactError as error:
                said.append(f"{name} is left out of {self.database.name}. {error}")
                return None

        files = {name: FileState(*state) for name, state in self._files().items()}
        try:
            bring_up_to_date(self.database, files, read)
        except Exception as error:  # DuckDB's, Polars', the system's
            told = disk_failure(error, self.folder.parent) or error
            said.append(
                f"{self.database.name} is behind the recordings, and catches up the next time. {told}"
            )
        return said

    def _files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of each recording, by id."""
        found = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    match = _FILE.fullmatch(entry.name)
                    state = entry.stat() if match and entry.is_file() else None
                    if match and state and stat.S_ISREG(state.st_mode):
                        found[match[1]] = (state.st_size, state.st_mtime_ns)
        except FileNotFoundError:
            pass
        return found

    @contextmanager
    def _refusals_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise disk_failure(error, self.folder) or ArtefactError(
                f"{self.folder} cannot be used: {error.strerror or error}."
            ) from error

    @contextmanager
    def _held(self) -> Iterator[None]:
        """One process at a time changes files and database together."""
        with held(self.folder / ".lock"):
            yield
