"""What commands print on stdout: an aligned table for people, JSON for programs. Nothing else goes there."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from neuroscope.cli.terminal import clip, echo, pad, visible, width
from neuroscope.doctor.words import human_bytes

__all__ = ["fitted", "human_bytes", "print_json", "show", "show_record", "table_lines"]

LEAST = 12
"""Columns that a text keeps, however narrow the terminal."""


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str = "") -> None:
    """Prints records; their keys are the columns. `empty` is said on stderr when there are none."""
    if as_json:
        click.echo(json.dumps([{key: _plain(value) for key, value in row.items()} for row in rows], indent=2))
        return
    if not rows:
        click.echo(empty, err=True)
        return
    for line in table_lines(rows):
        echo(line)


def table_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of an aligned table, the header first."""
    columns = list(rows[0])
    table = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(width(line[i]) for line in table) for i in range(len(columns))]
    right = [all(_is_number(row[column]) for row in rows) for column in columns]
    for line in table:
        cells = (
            pad(cell, room, right=number) for cell, room, number in zip(line, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()


def fitted(rows: Sequence[Mapping[str, Any]], text: str, columns: int) -> list[dict[str, Any]]:
    """The rows with what stands in their column `text` cut, so that the table's lines have at most `columns`."""
    others = [name for row in rows[:1] for name in row if name != text]
    taken = sum(max(map(width, [name, *(_cell(row[name]) for row in rows)])) + 2 for name in others)
    room = max(LEAST, columns - taken)
    return [{**row, text: clip(_cell(row[text]), room)} for row in rows]


def print_json(value: Any) -> None:
    """Prints a value that has more than one part; for programs only."""
    click.echo(json.dumps(_plain(value), indent=2))


def show_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints one record, a line for each field."""
    if as_json:
        click.echo(json.dumps({key: _plain(value) for key, value in record.items()}, indent=2))
        return
    longest = max(map(len, record))
    for key, value in record.items():
        echo(f"{key.ljust(longest)}  {_cell(value)}")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(str(value))


def _plain(value: Any) -> Any:
    """JSON has no NaN: a number that is not there is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
