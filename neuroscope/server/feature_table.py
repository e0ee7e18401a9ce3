"""All features at once, column by column: what a page needs to search and sort them by itself, and how often they fire.

131,072 features are some 9 MB of JSON, made once for each set of results. Made in pieces, in the lookups thread: one
long call of the JSON encoder would keep every other thread waiting.
"""

from __future__ import annotations

import gzip
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from neuroscope.server import wire
from neuroscope.server.loaded import Loaded

PIECE = 4096
"""Features whose values are encoded in one call, a millisecond."""
DIGITS = 4
"""Significant digits of a figure."""
BINS_A_DECADE = 4
COMPRESSION = 5

Row = dict[str, Any]


class Tagged(NamedTuple):
    """A body that readers may keep."""

    body: bytes
    etag: str


class FeatureTable(NamedTuple):
    """The same table for readers of gzip and for others."""

    plain: Tagged
    zipped: Tagged


def tagged(body: bytes) -> Tagged:
    return Tagged(body, hashlib.sha256(body).hexdigest()[:32])


def feature_table(loaded: Loaded, rows: Sequence[Row]) -> FeatureTable:
    """`rows` are the catalogue's, one a feature, in order. What is not known is null."""
    sources = sorted({row["source"] for row in rows} - {None})
    place = {source: n for n, source in enumerate(sources)}
    columns: dict[str, Iterator[bytes]] = {
        "label": _pieces(rows, lambda row: row["label"], wire.dumps),
        "source": _pieces(rows, lambda row: place.get(row["source"]), wire.dumps),
        "score": _figures(rows, "balanced_accuracy"),
        "firing_rate": _figures(rows, "firing_rate"),
        "max_activation": _figures(rows, "max_activation"),
    }
    head = {"sae_id": loaded.sae_id, "width": loaded.width, "sources": sources}
    parts = [wire.encode(head)[:-1]]
    for name, pieces in columns.items():
        parts.append(b',"%b":[%b]' % (name.encode(), b",".join(pieces)))
    body = b"".join([*parts, b"}"])
    return FeatureTable(tagged(body), tagged(gzip.compress(body, COMPRESSION, mtime=0)))


def densities(rows: Sequence[Row]) -> Row:
    """How many features fire how often: a histogram of log10 of their firing rates."""
    rates = [row["firing_rate"] for row in rows]
    logs = [math.log10(rate) for rate in rates if rate is not None and rate > 0]
    lowest = math.floor(min(logs, default=0))
    counts = [0] * (-lowest * BINS_A_DECADE)
    if logs and not counts:  # every feature fires on every token
        lowest, counts = -1, [0] * BINS_A_DECADE
    for value in logs:
        counts[min(int((value - lowest) * BINS_A_DECADE), len(counts) - 1)] += 1
    return {
        "width": len(rates),
        "unknown": sum(rate is None for rate in rates),
        "never_fired": sum(rate == 0 for rate in rates),
        "edges": [lowest + n / BINS_A_DECADE for n in range(len(counts) + 1)] if counts else [],
        "counts": counts,
    }


def _figures(rows: Sequence[Row], name: str) -> Iterator[bytes]:
    return _pieces(rows, lambda row: row[name], _few_digits)


def _pieces(
    rows: Sequence[Row], value: Callable[[Row], Any], encode: Callable[[list[Any]], str]
) -> Iterator[bytes]:
    """The values of a column as JSON, without the outer brackets, some thousand at a time."""
    for start in range(0, len(rows), PIECE):
        values = [value(row) for row in rows[start : start + PIECE]]
        yield encode(values)[1:-1].encode("utf-8", "replace")


def _few_digits(values: list[float | None]) -> str:
    return f"[{','.join('null' if value is None else f'{value:.{DIGITS}g}' for value in values)}]"
