"""Every feature as a row, for searching, sorting and paging through an SAE's features.

Held in memory, a few strings and numbers a feature: a search over 16,384 takes some milliseconds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuroscope.server import wire
from neuroscope.server.queries import read_choice, read_whole

if TYPE_CHECKING:
    from neuroscope.server.described import Described
    from neuroscope.store import Results

MAX_FOUND = 500
SEARCHED_BY = ("q", "labels", "sort", "order", "limit", "offset")
MAX_OFFSET = 999_999_999
SORTS = {
    "feature": "feature",
    "label": "label",
    "firing_rate": "firing_rate",
    "score": "balanced_accuracy",
    "max": "max_activation",
}
"""Name in the query -> field of a row."""
ASCENDING = ("feature", "label")
"""Sorted upwards where the query does not say; figures go downwards."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """What a query string asks for."""

    text: str
    """Empty: every feature, those without a label too."""
    in_all_labels: bool
    """In those that are not shown, too."""
    sort: str
    order: str
    limit: int
    offset: int


def read_search(query: Mapping[str, str]) -> Search:
    """Raises Problem 400 that names the parameter."""
    text = query.get("q", "").strip()
    sort = read_choice(query, "sort", "score" if text else "feature", tuple(SORTS))
    return Search(
        text,
        in_all_labels=read_choice(query, "labels", "shown", ("shown", "all")) == "all",
        sort=sort,
        order=read_choice(query, "order", "asc" if sort in ASCENDING else "desc", ("asc", "desc")),
        limit=read_whole(query, "limit", 50, 1, MAX_FOUND),
        offset=read_whole(query, "offset", 0, 0, MAX_OFFSET),
    )


class Catalogue:
    """The features of one set of results. Made and asked in one thread."""

    def __init__(self, loaded: Described) -> None:
        self.rows = _rows(loaded)
        """One a feature, in order; `label` is None where it has none."""
        self._folded = [None if row["label"] is None else folded(row["label"]) for row in self.rows]
        self._names = loaded.labels
        self._others = _other_labels(loaded.results)
        self._orders: dict[tuple[str, str], list[int]] = {}

    def search(self, wanted: Search) -> dict[str, Any]:
        """The features found, and how many there are in all. Raises ArtefactError for unreadable results."""
        in_order = self._in_order(wanted.sort, wanted.order)
        matched: dict[int, list[Row]] = {}
        if wanted.text:
            part = folded(wanted.text)
            if wanted.in_all_labels:
                matched = self._matched(part)
            in_order = [i for i in in_order if part in (self._folded[i] or "") or i in matched]
        page = in_order[wanted.offset : wanted.offset + wanted.limit]
        more = [{"matched": matched.get(i, [])} if wanted.in_all_labels else {} for i in page]
        return {
            "query": wanted.text,
            "sort": wanted.sort,
            "order": wanted.order,
            "total": len(in_order),
            "offset": wanted.offset,
            "limit": wanted.limit,
            "features": [
                {**self.rows[i], "label": self._names[i], **extra}
                for i, extra in zip(page, more, strict=True)
            ],
        }

    def _in_order(self, sort: str, order: str) -> list[int]:
        """Indices sorted by a field; without a value last either way, equal ones by index."""
        if (sort, order) not in self._orders:
            values: list[Any] = self._folded if sort == "label" else [row[SORTS[sort]] for row in self.rows]
            known = [i for i, value in enumerate(values) if value is not None]
            known.sort(key=lambda i: values[i], reverse=order == "desc")  # stable, reversed or not
            unknown = [i for i, value in enumerate(values) if value is None]
            self._orders[sort, order] = known + unknown
        return self._orders[sort, order]

    def _matched(self, part: str) -> dict[int, list[Row]]:
        """Labels that hold the text and are not shown, by feature."""
        found: dict[int, list[Row]] = {}
        for text, row in self._others():
            if part in text:
                found.setdefault(row["feature"], []).append({"source": row["source"], "label": row["label"]})
        return found


def folded(text: str) -> str:
    """As texts are compared: whatever their case, and however their accents are written."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _rows(loaded: Described) -> list[Row]:
    named = {} if loaded.known is None else {row.feature: row for row in loaded.known.named}
    rates, largest = _figures(loaded)
    rows = []
    for index, text in enumerate(loaded.labels):
        row = named.get(index)
        is_named = row is not None or text != f"feature_{index}"
        rows.append(
            {
                "feature": index,
                "label": text if is_named else None,
                "source": None if row is None else row.source,
                "confidence": None if row is None else row.confidence,
                "balanced_accuracy": None if row is None else wire.finite(row.balanced_accuracy),
                "firing_rate": wire.finite(rates[index]),
                "max_activation": wire.finite(largest[index]),
            }
        )
    return rows


def _figures(loaded: Described) -> tuple[list[float | None], list[float | None]]:
    """Firing rate and largest activation of every feature: over all texts where they were measured."""
    stats = loaded.stats if loaded.results is None else loaded.results.stats("all")
    if stats is None:
        return [None] * loaded.width, [None] * loaded.width
    return stats.firing_rate.tolist(), stats.max_activation.tolist()


def _other_labels(results: Results | None) -> Callable[[], list[tuple[str, Row]]]:
    """Labels that are not shown, folded; read when first asked for."""
    found: list[tuple[str, Row]] | None = None

    def read() -> list[tuple[str, Row]]:
        nonlocal found
        if found is None:
            rows = [] if results is None else results.other_labels()
            found = [(folded(row["label"]), row) for row in rows]
        return found

    return read
