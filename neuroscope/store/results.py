"""Reads results.duckdb: for the server, the command line and notebooks. Never writes.

How a file comes to be believed is `opening`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from neuroscope.errors import ArtefactError, made_anew
from neuroscope.manifest import Fingerprint
from neuroscope.stats import CalibrationStats
from neuroscope.store.held import HeldFile
from neuroscope.store.one_feature import OF_A_STRATUM, ORDERS, shown_row

KINDS = ("top", "sample", "held_out")

UNREADABLE = (
    duckdb.IOException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.SerializationException,
    duckdb.OutOfMemoryException,
)
"""What DuckDB raises when bytes are missing or are not what they were."""


class FeatureLabel(NamedTuple):
    """The label shown for a feature."""

    feature: int
    label: str
    source: str
    confidence: str | None
    balanced_accuracy: float | None


class Results:
    """An open results database. Threads may share it: each question has its own cursor.

    Tables are named with the database that was attached: `USE` would take a tenth of a feature's page.
    """

    def __init__(
        self, path: Path, connection: duckdb.DuckDBPyConnection, file: HeldFile | None = None
    ) -> None:
        self.path = path
        self._connection = connection
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        if self._file is not None:
            self._file.close()

    @property
    def is_whole(self) -> bool:
        """Whether the open file's bytes are those that were checked; a file that was replaced is whole too."""
        return self._file is None or self._file.is_whole()

    def meta(self) -> dict[str, Any]:
        """Every entry of `meta`, decoded."""
        return {
            row["key"]: json.loads(row["value"]) for row in self._rows("SELECT key, value FROM results.meta")
        }

    def fingerprint(self) -> Fingerprint:
        """What made this database. Raises ArtefactError when it does not say."""
        try:
            written = self.meta()["fingerprint"]
        except (KeyError, ValueError) as error:
            raise ArtefactError(f"{self.path} does not say what made it ({error}). {made_anew()}") from error
        return Fingerprint.from_dict(written, of=str(self.path), remedy=made_anew())

    @cached_property
    def histogram_edges(self) -> list[float]:
        """Bin n of a histogram lies between edges n - 1 and n; the first and the last are open. Empty where unknown."""
        edges: list[float] = self.meta().get("histogram_edges", [])
        return edges

    def strata(self) -> list[str]:
        """Strata with statistics, `all` among them."""
        return [
            row["stratum"]
            for row in self._rows("SELECT DISTINCT stratum FROM results.features ORDER BY stratum")
        ]

    def stats(self, stratum: str = "all") -> CalibrationStats:
        """Statistics of one stratum. Raises ArtefactError when the database has none for it."""
        names = ("n_fired", "mean_firing", "variance_firing", "mean_all", "variance_all", "max_activation")
        query = (
            f"SELECT n_tokens, {', '.join(names)} FROM results.features WHERE stratum = ? ORDER BY feature"
        )
        with self._cursor() as cursor:
            found = cursor.execute(query, [stratum]).fetchnumpy()
        if not len(found["n_fired"]):
            raise ArtefactError(
                f"{self.path} has no statistics for stratum {stratum!r}. It has: {', '.join(self.strata())}."
            )
        arrays = [np.ma.filled(np.ma.asarray(found[name], np.float64), np.nan) for name in names[1:]]
        return CalibrationStats(int(found["n_tokens"][0]), np.asarray(found["n_fired"], np.int64), *arrays)

    @cached_property
    def has_examples(self) -> bool:
        return bool(self._rows("SELECT 1 FROM results.examples LIMIT 1"))

    def labels(self) -> list[FeatureLabel]:
        """The label shown for each feature that has one, in order of feature."""
        query = (
            "SELECT feature, label, source, confidence, balanced_accuracy FROM results.feature "
            "WHERE source IS NOT NULL ORDER BY feature"
        )
        return [FeatureLabel(**row) for row in self._rows(query)]

    @cached_property
    def _has_states(self) -> bool:
        return bool(self._rows("SELECT 1 FROM duckdb_tables() WHERE table_name = 'label_states'"))

    def label_states(self) -> dict[int, dict[str, tuple[str, str | None]]]:
        """Feature -> source -> how it fared there and why; empty for a database of before there were states."""
        if not self._has_states:
            return {}
        found: dict[int, dict[str, tuple[str, str | None]]] = {}
        for row in self._rows("SELECT feature, source, state, reason FROM results.label_states ORDER BY ALL"):
            found.setdefault(row["feature"], {})[row["source"]] = (row["state"], row["reason"])
        return found

    def feature(self, index: int) -> dict[str, Any] | None:
        """Everything about one feature but its examples; None when there is no such feature."""
        # Plain looks at one table each, put together here: joins and sorting take DuckDB most of a page's time.
        strata = self._about("features", "* EXCLUDE feature", index)
        of_all = next((row for row in strata if row["stratum"] == "all"), None)
        if of_all is None:
            return None
        labels = self._about("labels", "rank, source, label, confidence, model, method, created_at", index)
        scores = self._about("scores", "* EXCLUDE feature", index)
        return shown_row(index, of_all, labels, scores) | {
            "strata": [{name: row[name] for name in OF_A_STRATUM} for row in strata],
            "histogram": of_all["histogram"],
            "labels": labels,
            "scores": scores,
            "states": self._about("label_states", "source, state, reason", index) if self._has_states else [],
            "logits": self._about("logits", "kind, rank, token_id, token, weight, source", index),
            "neighbours": self._neighbours(index),
        }

    def _neighbours(self, index: int) -> list[dict[str, Any]]:
        rows = self._rows(
            "SELECT n.other, coalesce(l.label, 'feature_' || n.other) AS label, n.cofiring, n.n_both "
            "FROM results.neighbours n LEFT JOIN results.labels l ON l.feature = n.other AND l.rank = 1 "
            "WHERE n.feature = ?",
            [index],
        )
        return sorted(rows, key=lambda row: (-row["cofiring"], row["other"]))

    def examples(self, index: int, kind: str = "top", n: int = 20) -> list[dict[str, Any]]:
        """At most `n` examples of one kind (top, sample, held_out), in order of rank."""
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
        rows = self._rows("SELECT * FROM results.examples WHERE feature = ? AND kind = ?", [index, kind])
        return sorted(rows, key=itemgetter("rank"))[:n]

    def other_labels(self) -> list[dict[str, Any]]:
        """Feature, source and text of the labels that are not shown, by feature and rank."""
        return self._rows(
            "SELECT feature, source, label FROM results.labels WHERE rank <> 1 ORDER BY feature, rank"
        )

    def token_texts(self, tokens: Collection[int]) -> dict[int, str]:
        """Texts of the vocabulary's tokens with these ids."""
        return {token: self._vocabulary[token] for token in tokens if token in self._vocabulary}

    @cached_property
    def _vocabulary(self) -> dict[int, str]:
        """In memory, since every page asks for some hundred of them: 5 MB for 50,000 tokens."""
        return {
            row["token_id"]: row["token"] for row in self._rows("SELECT token_id, token FROM results.tokens")
        }

    def label_counts(self) -> dict[str, int]:
        """How many features each source has a label for; sources without any are absent."""
        query = (
            "SELECT source, count(DISTINCT feature) AS n FROM results.labels GROUP BY source ORDER BY source"
        )
        return {row["source"]: row["n"] for row in self._rows(query)}

    def all_labels(self) -> list[dict[str, Any]]:
        """Every label of every source, by feature and rank, with its score.

        A score is about a feature and a source: where a source has several labels it is the first one's.
        """
        return self._rows(
            "SELECT l.* EXCLUDE place, s.balanced_accuracy AS score FROM ("
            "SELECT *, row_number() OVER (PARTITION BY feature, source ORDER BY rank) AS place FROM results.labels) l "
            "LEFT JOIN (SELECT * FROM results.scores "
            "QUALIFY row_number() OVER (PARTITION BY feature, source ORDER BY method) = 1) s "
            "ON s.feature = l.feature AND s.source = l.source AND l.place = 1 ORDER BY l.feature, l.rank"
        )

    def scores(self) -> dict[tuple[str, str], NDArray[np.float64]]:
        """Balanced accuracies by source and method, in order of feature; NaN for a label without a score."""
        query = "SELECT balanced_accuracy AS score FROM results.scores WHERE source = ? AND method = ? ORDER BY feature"
        found = {}
        for row in self._rows("SELECT DISTINCT source, method FROM results.scores ORDER BY source, method"):
            with self._cursor() as cursor:
                score = cursor.execute(query, [row["source"], row["method"]]).fetchnumpy()["score"]
            found[row["source"], row["method"]] = np.ma.filled(np.ma.asarray(score, np.float64), np.nan)
        return found

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self._refuse_changed()
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except UNREADABLE as error:
            raise self._changed(f" ({error})") from error
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise ArtefactError(f"{self.path} is of another version ({error}). {made_anew()}") from error
        self._refuse_changed()

    def _refuse_changed(self) -> None:
        if not self.is_whole:
            raise self._changed("")

    def _changed(self, why: str) -> ArtefactError:
        return ArtefactError(
            f"{self.path} cannot be read any more{why}. It was cut or changed in place. {made_anew()}"
        )

    def _about(self, table: str, columns: str, index: int) -> list[dict[str, Any]]:
        """A feature's rows of one table, in the table's order."""
        rows = self._rows(f"SELECT {columns} FROM results.{table} WHERE feature = ?", [index])
        return sorted(rows, key=itemgetter(*ORDERS[table]))

    def _rows(self, query: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with self._cursor() as cursor:
            cursor.execute(query, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
