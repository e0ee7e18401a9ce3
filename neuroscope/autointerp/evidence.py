"""What the sweep left behind, as labelers and scorers read it: examples, the pool of windows, logits, rates.

Only reads Parquet files, by the columns that `examples`, `sweep` and `logits` document. The pool is split by document
in two: labelers may look at one side, negatives of the detection score come from the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.autointerp.words import PAD, Ints
from neuroscope.errors import ArtefactError, LabelError, made_anew

CENTRE = 12
"""Column of the activating token in the window of an example."""

EDGE = 3
_EXAMPLES = ("feature", "kind", "rank", "activation", "window", "doc_id")
_POOL = ("doc_id", "position", "window", "features", "offsets", "activations")


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Windows on which one feature fires, and where."""

    windows: Ints
    """[n, width] token ids, -1 where the document ends."""
    at: NDArray[np.int64]
    """[n] column of the token on which it fires."""
    activations: NDArray[np.float32]
    """[n] how strongly."""

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Examples:
        return Examples(self.windows[rows], self.at[rows], self.activations[rows])

    def without(self, other: Examples) -> Examples:
        """The examples whose window is none of `other`'s."""
        known = {window.tobytes() for window in other.windows}
        return self.take([row for row, window in enumerate(self.windows) if window.tobytes() not in known])

    @classmethod
    def joined(cls, *parts: Examples) -> Examples:
        """All examples of `parts`, in order."""
        return cls(
            np.concatenate([part.windows for part in parts]),
            np.concatenate([part.at for part in parts]),
            np.concatenate([part.activations for part in parts]),
        )


def is_for_labelling(doc_id: str) -> bool:
    """Whether a pool document is on the labelers' side, by hash: half of them are."""
    return bool(hashlib.blake2b(doc_id.encode(), digest_size=1, person=b"pool side").digest()[0] & 1)


def document_keys(doc_ids: pl.Series) -> NDArray[np.uint64]:
    """A number for each document, the same for the same document throughout this process."""
    return doc_ids.hash(seed=0).to_numpy()


def scan(path: Path) -> tuple[pl.LazyFrame, list[str]]:
    """A lazy frame and the names of its columns; `ArtefactError` when the file is missing or unreadable."""
    try:
        frame = pl.scan_parquet(path)
        return frame, frame.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}. {made_anew()}") from error


def read_columns(path: Path, columns: Sequence[str]) -> pl.LazyFrame:
    """A lazy frame of `columns`; `ArtefactError` when the file is missing, unreadable or lacks one."""
    frame, present = scan(path)
    missing = [name for name in columns if name not in present]
    if missing:
        raise ArtefactError(f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(present)}.")
    return frame.select(columns)


def window_array(column: pl.Series) -> Ints:
    """A column of windows as [n, width]; nulls become -1."""
    if not len(column):
        return np.zeros((0, 2 * CENTRE + 1), np.int32)
    flat = column.explode().fill_null(PAD).cast(pl.Int32).to_numpy()
    return np.ascontiguousarray(flat.reshape(len(column), -1))


def _slices(features: NDArray[Any]) -> dict[int, slice]:
    """Where each feature's rows are, in an array sorted by feature."""
    distinct, starts = np.unique(features, return_index=True)
    ends = np.append(starts[1:], len(features))
    pairs = zip(distinct.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return {feature: slice(start, end) for feature, start, end in pairs}


@dataclass(frozen=True, eq=False)
class ExampleTable:
    """Examples of one kind for every feature that has some."""

    windows: Ints
    activations: NDArray[np.float32]
    documents: NDArray[np.uint64]
    """See `document_keys`."""
    rows: Mapping[int, slice]

    @classmethod
    def read(cls, path: Path, kind: str, limit: int) -> ExampleTable:
        """The first `limit` examples of `kind` (top, sample or held_out) by rank."""
        frame = read_columns(path, _EXAMPLES).filter((pl.col("kind") == kind) & (pl.col("rank") < limit))
        table = frame.sort("feature", "rank").collect()
        return cls(
            window_array(table["window"]),
            table["activation"].to_numpy().astype(np.float32),
            document_keys(table["doc_id"]),
            _slices(table["feature"].to_numpy()),
        )

    def of(self, feature: int) -> Examples:
        rows = self.rows.get(feature, slice(0, 0))
        windows = self.windows[rows]
        return Examples(windows, np.full(len(windows), CENTRE), self.activations[rows])


def held_out_documents(path: Path) -> dict[int, frozenset[str]]:
    """The documents of each feature's held-out examples: its labeler must not see them."""
    frame = read_columns(path, _EXAMPLES).filter(pl.col("kind") == "held_out")
    table = frame.group_by("feature").agg(pl.col("doc_id").unique()).collect()
    return {row[0]: frozenset(row[1]) for row in table.iter_rows()}


@dataclass(frozen=True, eq=False)
class PoolSide:
    """One side of the pool: windows with the activations of every feature in them."""

    windows: Ints
    documents: tuple[str, ...]
    positions: NDArray[np.int64]
    """[n] position of each window's middle in its document; windows may overlap."""
    rows: Mapping[int, slice]
    """Where a feature's firings are in the three arrays below."""
    window: NDArray[np.int64]
    offset: NDArray[np.int64]
    activation: NDArray[np.float32]

    @classmethod
    def read(cls, path: Path, *, labelling: bool) -> PoolSide:
        """The labelers' side of the pool, or the scorers'."""
        table = read_columns(path, _POOL).collect()
        keep = [is_for_labelling(document) == labelling for document in table["doc_id"]]
        table = table.filter(pl.Series(keep, dtype=pl.Boolean)).with_row_index("row")
        firings = table.select("row", "features", "offsets", "activations").explode(
            "features", "offsets", "activations"
        )
        firings = firings.drop_nulls().sort("features", "row", "offsets")
        return cls(
            window_array(table["window"]),
            tuple(table["doc_id"]),
            table["position"].to_numpy().astype(np.int64),
            _slices(firings["features"].to_numpy()),
            firings["row"].to_numpy().astype(np.int64),
            firings["offsets"].to_numpy().astype(np.int64),
            firings["activations"].to_numpy().astype(np.float32),
        )

    def active(self, feature: int) -> NDArray[np.int64]:
        """Rows of the windows in which the feature fires somewhere, ascending."""
        return np.unique(self.window[self.rows.get(feature, slice(0, 0))])

    def firings(self, feature: int, *, without: frozenset[str] = frozenset(), limit: int) -> Examples:
        """Up to `limit` firings, each token once, none of a document in `without`; evenly over the documents.

        Firings at a window's edge are left out: their word may be cut off.
        """
        rows = self.rows.get(feature, slice(0, 0))
        seen: dict[tuple[str, int], int] = {}
        for index, (row, offset) in enumerate(
            zip(self.window[rows].tolist(), self.offset[rows].tolist(), strict=True)
        ):
            document = self.documents[row]
            if document not in without and EDGE <= offset < self.windows.shape[1] - EDGE:
                seen.setdefault((document, int(self.positions[row]) + offset), index)
        found = np.array([seen[place] for place in sorted(seen)], np.int64)
        if len(found) > limit:
            found = found[np.linspace(0, len(found) - 1, limit).round().astype(np.int64)]
        window = self.window[rows][found]
        return Examples(self.windows[window], self.offset[rows][found], self.activation[rows][found])


def read_neighbours(path: Path | None) -> dict[int, tuple[int, ...]]:
    """The features that fire with each feature, nearest first; nothing without a file."""
    if path is None:
        return {}
    table = read_columns(path, ("feature", "other", "cofiring")).collect()
    table = table.sort("feature", "cofiring", "other", descending=[False, True, False])
    others = table["other"].to_list()
    return {feature: tuple(others[rows]) for feature, rows in _slices(table["feature"].to_numpy()).items()}


def read_logits(path: Path | None) -> dict[int, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Promoted and suppressed tokens of each feature, strongest first; nothing without a file."""
    if path is None:
        return {}
    table = read_columns(path, ("feature", "kind", "rank", "token")).sort("feature", "kind", "rank").collect()
    found: dict[int, tuple[list[str], list[str]]] = {}
    for feature, kind, _, token in table.iter_rows():
        if kind not in ("promoted", "suppressed"):
            raise LabelError(f"{path} has logits of kind {kind!r}; promoted and suppressed are expected.")
        found.setdefault(feature, ([], []))[kind == "suppressed"].append(token)
    return {feature: (tuple(up), tuple(down)) for feature, (up, down) in found.items()}


def read_firing_rates(path: Path | None) -> dict[int, float]:
    """Each feature's firing rate over all strata, from stats.parquet."""
    if path is None:
        return {}
    table = read_columns(path, ("feature", "stratum", "n_tokens", "n_fired")).filter(
        pl.col("stratum") == "all"
    )
    rows = table.select("feature", "n_tokens", "n_fired").collect().iter_rows()
    return {feature: fired / max(tokens, 1) for feature, tokens, fired in rows}
