"""The rows of Neuronpedia's batches: JSON objects about one feature each, checked for that and no more."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroscope.errors import LabelError, SourceError

LONGEST = 64 << 20
"""Bytes of a line. Rows have some kilobytes; a line without an end must not fill the memory."""

Row = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """Rows that were read, and those (or parts of them) left out, by reason."""

    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def read_rows(batches: Iterable[Path], d_sae: int, tally: Tally) -> Iterator[tuple[int, Row]]:
    """Every row with its feature, in the order of the files.

    `index` is text, and the files are in lexicographic order of it, so that each feature may be in any of them.
    Raises SourceError for a file of which no line is good, LabelError for a feature that the SAE does not have.
    """
    for path in batches:
        good = lines = 0
        for line in _lines(path):
            tally.rows, lines = tally.rows + 1, lines + 1
            row = _parse(line)
            if row is None:
                tally.refused["not a JSON object"] += 1
                continue
            good += 1
            feature = _feature(row.get("index"))
            if feature is None:
                tally.refused["no feature index"] += 1
                continue
            if feature >= d_sae:
                raise LabelError(
                    f"{path}: a row is about feature {feature}, this SAE has {d_sae:,}. Neuronpedia's data is about "
                    "another SAE: correct neuronpedia.sae_id in the pairing's file."
                )
            yield feature, row
        if lines and not good:
            raise SourceError(f"{path}: not one line is a JSON object. {_ANEW}")


_ANEW = "Fetch it anew with: neuroscope labels import neuronpedia --refresh"


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) as file:
            while line := file.readline(LONGEST):
                if len(line) == LONGEST:
                    raise SourceError(f"{path}: a line is longer than {LONGEST >> 20} MB. {_ANEW}")
                if line.strip():
                    yield line
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: damaged in the cache ({error}). {_ANEW}") from error


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _feature(index: Any) -> int | None:
    if isinstance(index, str) and index.isascii() and index.isdigit() and len(index) < 10:
        return int(index)
    return index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else None


def clean(text: str) -> str:
    """Without lone surrogates, which no table can hold."""
    return text.encode("utf-8", "replace").decode()
