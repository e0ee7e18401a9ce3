"""The ledger of calls: one append-only JSONL file, a row per call that ended, so that no call is paid twice.

Rows are with the operating system as soon as they are written, and on the disk (fsync) a few at a time: a killed
process loses the calls in flight, a machine without power at most the last few rows. One process writes at a time.
What a row's text is worth is not judged here.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from neuroscope.autointerp.calls.ask import Key, Usage
from neuroscope.errors import ArtefactError, LabelError

MAX_INVALID = 3
"""Answers of no use after which an ask is given up."""
MAX_FAILED = 3
"""Runs in which an ask may fail before it is given up."""
SYNC_ROWS, SYNC_SECONDS = 16, 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """How one call ended."""

    feature: int
    purpose: str
    content_hash: str
    model: str
    attempt: int
    """From 1, over all runs."""
    state: str
    """What the caller calls a good answer, or refused, truncated, invalid, failed."""
    text: str | None = None
    """The answer as it came; None for failed."""
    reason: str | None = None
    """Why it is not a good one."""
    usage: Usage = field(default_factory=Usage)
    usd: float = 0.0
    batch: str | None = None
    at: str = ""

    @property
    def key(self) -> Key:
        return (self.feature, self.purpose, self.content_hash)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was handed in, or was about to be."""

    token: str
    """Custom ids are `<token>-<index into keys>`."""
    model: str
    keys: tuple[Key, ...]
    reserved_usd: float
    at: float
    """Seconds since the epoch."""
    id: str | None = None


class Ledger:
    """Reads a ledger; within `with`, writes it. Raises ArtefactError for a damaged line in the middle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._calls: dict[tuple[Key, str], list[Call]] = defaultdict(list)
        self._batches: dict[str, Batch] = {}
        self._since_done: dict[tuple[str, str], float] = defaultdict(float)
        self._file: IO[bytes] | None = None
        self._unsynced, self._synced_at = 0, time.monotonic()
        if path.is_file():
            self._read(path.read_bytes())

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise LabelError(
                f"Another process is writing {self.path}. Wait until it ends, then run this again."
            ) from error
        try:
            self._file.seek(0)
            content = self._file.read()
            self._forget()
            self._read(content)
        except ArtefactError:
            self._file.close()
            raise
        self._file.truncate(content.rfind(b"\n") + 1)  # a row torn by a kill was never complete
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self.sync()
        self._file.close()
        self._file = None

    def of(self, key: Key, model: str) -> list[Call]:
        """The calls of an ask so far, oldest first."""
        return self._calls.get((key, model), [])

    def settled(self, key: Key, model: str) -> Call | None:
        """The call that settles an ask; None when it is to be asked (again)."""
        calls = self.of(key, model)
        if not calls:
            return None
        last = calls[-1]
        limit = {"invalid": MAX_INVALID, "failed": MAX_FAILED}.get(last.state, 1)
        return last if sum(call.state == last.state for call in calls) >= limit else None

    def spent(self, purpose: str, model: str) -> float:
        """Dollars since a run for `purpose` last came to its end: those of interrupted runs."""
        return self._since_done[purpose, model]

    def open_batches(self, purpose: str, model: str) -> list[Batch]:
        """Batches whose results have not all been written down, oldest first."""
        return [
            batch for batch in self._batches.values() if batch.model == model and batch.keys[0][1] == purpose
        ]

    def write(self, call: Call) -> None:
        self._take(call)
        self._append({"row": "call", **asdict(call)})
        if self._unsynced >= SYNC_ROWS or time.monotonic() - self._synced_at > SYNC_SECONDS:
            self.sync()

    def begin_batch(self, batch: Batch) -> None:
        """Before a batch is handed in (without an id), and when it was (with one). On the disk on return."""
        self._batches[batch.token] = batch
        keys: Iterable[Key] = batch.keys if batch.id is None else ()
        self._append({"row": "batch", **asdict(batch), "keys": [list(key) for key in keys]})
        self.sync()

    def end_batch(self, batch: Batch) -> None:
        """When all its results are written, or it is known that it was never handed in."""
        self._batches.pop(batch.token, None)
        self._append({"row": "batch_end", "token": batch.token})
        self.sync()

    def done(self, purpose: str, model: str) -> None:
        """A run for `purpose` came to its end."""
        self._since_done[purpose, model] = 0.0
        self._append({"row": "done", "purpose": purpose, "model": model})
        self.sync()

    def sync(self) -> None:
        """Puts on the disk what was written."""
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._unsynced, self._synced_at = 0, time.monotonic()

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self._file is not None, "a ledger is written within `with`"
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()
        self._unsynced += 1

    def _forget(self) -> None:
        self._calls.clear()
        self._batches.clear()
        self._since_done.clear()

    def _read(self, content: bytes) -> None:
        *lines, _ = content.split(b"\n")  # what follows the last newline is torn, or nothing
        for number, line in enumerate(lines, 1):
            try:
                self._take_row(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ArtefactError(
                    f"{self.path}, line {number}, is not a row of this ledger ({error}). Delete that line: its call "
                    "will be asked again, all others are kept."
                ) from error

    def _take_row(self, row: Any) -> None:
        if not isinstance(row, dict):
            raise TypeError("no JSON object")
        kind = row.pop("row")
        if kind == "call":
            self._take(_call(row))
        elif kind == "batch":
            known = self._batches.get(row["token"])
            keys = known.keys if known is not None else tuple((f, p, h) for f, p, h in row["keys"])
            self._batches[row["token"]] = _batch({**row, "keys": keys})
        elif kind == "batch_end":
            self._batches.pop(row["token"], None)
        elif kind == "done":
            self._since_done[row["purpose"], row["model"]] = 0.0
        else:
            raise ValueError(f"a row of kind {kind!r}")

    def _take(self, call: Call) -> None:
        self._calls[call.key, call.model].append(call)
        self._since_done[call.purpose, call.model] += call.usd


def _call(row: Mapping[str, Any]) -> Call:
    """A call's row. Raises ValueError or TypeError for one that no run writes: people edit ledgers."""
    call = Call(**{**row, "usage": Usage(**row["usage"])})
    counts = astuple(call.usage)
    texts = (call.purpose, call.content_hash, call.model, call.state, call.text or "")
    if not all(type(number) is int and number >= 0 for number in (call.feature, *counts)):
        raise ValueError("a feature or a number of tokens that is no count")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text that is none")
    if not 0 <= call.usd < float("inf"):  # what is not so would lift the limit on costs
        raise ValueError(f"a cost of {call.usd} dollars")
    return call


def _batch(row: Mapping[str, Any]) -> Batch:
    """A batch's row, likewise."""
    batch = Batch(**row)
    if not batch.keys:
        raise ValueError("a batch whose first row is missing")
    if not 0 <= batch.reserved_usd < float("inf") or not 0 <= batch.at < float("inf"):
        raise ValueError("a batch of no cost or time")
    return batch


def now() -> str:
    """The time for a row, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
