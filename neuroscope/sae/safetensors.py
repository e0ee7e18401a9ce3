"""Reads the arrays of a safetensors file that nobody vouches for: the whole header is checked before any allocation.

The layout: 8 bytes of header length, little-endian; a JSON object, name -> dtype, shape and data_offsets; the data,
every byte of it in exactly one tensor (https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neuroscope.errors import SAEFormatError
from neuroscope.sae.checks import (
    DAMAGED,
    Array,
    check_names,
    check_shape,
    check_start,
    finish,
    read_exactly,
)
from neuroscope.sae.config import parse_object

MAX_HEADER = 1 << 20
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_OTHERS = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8}
_ITEM_SIZE = {name: np.dtype(descr).itemsize for name, descr in _FLOATS.items()} | _OTHERS


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors(
    path: Path, wanted: Mapping[str, int], *, optional: frozenset[str] = frozenset()
) -> dict[str, Array]:
    """The arrays named in `wanted` (name -> number of dimensions), finite, as float32 or float64.

    bfloat16 and float16 are widened exactly. Raises SAEFormatError that names the file and what was found.
    """
    entries, start = _header(path)
    check_names(path, entries, wanted, optional)
    arrays = {}
    try:
        with path.open("rb") as stream:
            for name, dimensions in wanted.items():
                if name not in entries:
                    continue
                entry = entries[name]
                check_shape(path, name, entry.shape, entry.dtype, dimensions, entry.dtype in _FLOATS)
                stream.seek(start + entry.begin)
                raw = read_exactly(stream, entry.end - entry.begin).view(_FLOATS[entry.dtype])
                arrays[name] = (_widened(raw) if entry.dtype == "BF16" else raw).reshape(entry.shape)
    except (OSError, EOFError) as error:
        raise SAEFormatError(f"{path} is damaged: {error}. {DAMAGED}") from error
    return finish(path, arrays)


def names_in(path: Path) -> set[str]:
    """The names of a safetensors file's tensors. Raises SAEFormatError as `read_safetensors` does."""
    return set(_header(path)[0])


def _header(path: Path) -> tuple[dict[str, _Entry], int]:
    """The file's tensors by name, and the byte at which the data begin."""
    size = check_start(path, "a safetensors file", b"{", at=8)
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(MAX_HEADER, size - 8):
            raise SAEFormatError(
                f"{path}: its header claims {length} bytes; the file has {size}, and at most {MAX_HEADER} are "
                f"accepted. {DAMAGED}"
            )
        return _entries(path, stream.read(length), size - 8 - length), 8 + length


def _entries(path: Path, header: bytes, data_size: int) -> dict[str, _Entry]:
    """Every tensor of the header; together they cover the data once. Raises SAEFormatError."""
    tensors = parse_object(path, header)
    tensors.pop("__metadata__", None)
    entries = {name: _entry(path, name, value) for name, value in tensors.items()}
    spans = sorted((entry.begin, entry.end, name) for name, entry in entries.items())
    for (_, end, before), (begin, _, after) in pairwise(spans):
        if begin != end:
            what = "overlap" if begin < end else "leave a gap"
            raise SAEFormatError(f"{path}: {before} and {after} {what} at byte {end} of the data. {DAMAGED}")
    covered = (spans[0][0], spans[-1][1]) if spans else (0, 0)
    if covered != (0, data_size):
        raise SAEFormatError(
            f"{path}: by its header the data are bytes {covered[0]} to {covered[1]}, the file has {data_size}. "
            f"{DAMAGED}"
        )
    return entries


def _entry(path: Path, name: str, value: Any) -> _Entry:
    bad = SAEFormatError(f"{path}: the header's entry for {name[:60]} is malformed. {DAMAGED}")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise bad
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise bad
    if dtype not in _ITEM_SIZE:
        raise SAEFormatError(
            f"{path}: {name[:60]} has dtype {dtype[:20]}, which no SAE release uses. {DAMAGED}"
        )
    begin, end = offsets
    if end - begin != math.prod(shape) * _ITEM_SIZE[dtype]:
        raise SAEFormatError(
            f"{path}: {name[:60]} of shape {str(shape)[:80]} and dtype {dtype} does not take {end - begin} bytes. "
            f"{DAMAGED}"
        )
    return _Entry(dtype, tuple(shape), begin, end)


def _are_sizes(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= 8
        and all(type(value) is int and 0 <= value < 1 << 48 for value in values)
    )


def _widened(raw: Array) -> Array:
    """bfloat16 bits [n] uint16 as float32: the same sign, exponent and upper mantissa."""
    return (raw.astype(np.uint32) << 16).view(np.float32)
