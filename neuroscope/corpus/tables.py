"""Records out of JSON and Parquet files; CSV's are `delimited`'s. What in a record is the text, `records` knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope.corpus.files import TextFile
from neuroscope.corpus.found import Found, Skipped
from neuroscope.corpus.records import (
    KNOWN_NAMES,
    SAMPLE,
    TEXT_NAMES,
    is_prose,
    is_talk,
    longest_prose,
    text_of,
    texts,
)

MAX_WHOLE_BYTES = 512 << 20
"""JSON that is not JSON lines is held in memory, several times as large."""
PARQUET_ROWS = 10_000
"""Rows read at once."""
WRAPPERS = ("data", "rows", "records", "items", "documents", "examples", "texts")
"""Names under which an object holds a file's records."""
LINES_NAMED = re.compile(r"\.(jsonl|ndjson)(\.|$)", re.IGNORECASE)
_INVALID = Skipped("invalid JSON")


def read_json(file: TextFile) -> Iterator[Found]:
    """JSON, or JSON lines whatever the file is called."""
    with file.open() as stream:
        filled = (
            line for line in stream if line.strip()
        )  # str.splitlines would cut at the U+2028 that JSON allows
        first, second = _parsed(next(filled, "[]")), next(filled, None)
        if second is None:
            yield from texts(_records_in(first))
            return
        if first is not _INVALID:
            yield from texts(chain([first, _parsed(second)], map(_parsed, filled)))
            return
    whole = _whole(file)
    if isinstance(whole, Skipped) and LINES_NAMED.search(file.path.name):
        with file.open() as stream:
            yield from texts(_parsed(line) for line in stream if line.strip())
    else:
        yield from texts(_records_in(whole))


def _whole(file: TextFile) -> Any:
    if file.size > MAX_WHOLE_BYTES:
        return Skipped("JSON larger than 512 MiB that is not JSON lines")
    with file.open() as stream:
        return _parsed(stream.read())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _INVALID


def _records_in(content: Any) -> Iterable[Any]:
    """The records of a JSON file: a list of them, an object that holds them, or one alone."""
    if isinstance(content, dict):
        return _records_of(content)
    if isinstance(content, list) and not (_all(content, dict) and is_talk(content)):
        return content
    return [content]


def _records_of(content: dict[str, Any]) -> Iterable[Any]:
    """An object's records: its column of texts, the lists in it, its values by name, or itself."""
    for name, value in content.items():
        by_row = isinstance(value, dict) and all(row.isdecimal() for row in value)  # as pandas writes columns
        column = list(value.values()) if by_row else value
        if name.casefold() in (*WRAPPERS, *TEXT_NAMES) and _all(column, str):
            return column
    values, names = list(content.values()), set(map(str.casefold, content))
    lists = [value for value in values if (_all(value, dict) and not is_talk(value)) or _all(value, list)]
    wrapped = any(name.casefold() in WRAPPERS and value in lists for name, value in content.items())
    if lists and (wrapped or isinstance(text_of(content), Skipped)):
        return chain.from_iterable(lists)
    by_name = (
        _all(values, str) and names.isdisjoint(KNOWN_NAMES) and 2 * sum(map(is_prose, values)) > len(values)
    )
    return values if by_name or _all(values, dict) else [content]


def _all(values: object, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, kind) for value in values)


def read_parquet(file: Path) -> Iterator[Found]:
    """The rows of a Parquet file, a few at a time and of the columns that may be text."""
    try:
        whole = pl.scan_parquet(file, glob=False)
        dtypes = whole.collect_schema().items()
        readable = [name for name, dtype in dtypes if dtype == pl.String or isinstance(dtype, pl.List)]
        columns = [name for name in readable if name.strip().casefold() in KNOWN_NAMES]
        if not columns:
            strings = [name for name, dtype in dtypes if dtype == pl.String]
            guess = longest_prose(whole.select(strings).head(SAMPLE).collect().iter_rows(named=True))
            columns = [] if guess is None else [guess]
        if not columns:
            yield Skipped("no text field")
            return
        yield from texts(_rows(whole.select(columns)))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        yield Skipped("damaged or unreadable")


def _rows(frame: pl.LazyFrame) -> Iterator[dict[str, Any]]:
    height = frame.select(pl.len()).collect().item()
    for start in range(0, height, PARQUET_ROWS):
        yield from frame.slice(start, PARQUET_ROWS).collect().iter_rows(named=True)
