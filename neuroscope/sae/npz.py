"""Reads the arrays of an NPZ file that nobody vouches for: checked before a byte is allocated, never unpickled."""

from __future__ import annotations

import ast
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

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

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError, RuntimeError)
MAX_RATIO = 64
"""Float weights hardly compress; a member that unpacks to more than this many times its size is a bomb."""
SMALL = 1 << 24
"""Bytes that a member may unpack to whatever its size: a bias of zeros packs to nothing."""
MAX_HEADER = 1024


def read_npz(
    path: Path, wanted: Mapping[str, int], *, optional: frozenset[str] = frozenset()
) -> dict[str, Array]:
    """The arrays named in `wanted` (name -> number of dimensions), finite, as float32 or float64.

    Raises SAEFormatError, naming the file and what was found, when the file is not an NPZ (an HTML page or Git LFS
    pointer is called what it is), lacks an array, holds one twice, of another shape or kind, or is not whole.
    """
    size = check_start(path, "an NPZ file", b"PK\x03\x04")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            if len(set(members)) != len(members):
                raise SAEFormatError(f"{path} holds an array twice: {sorted(members)[:12]}. {DAMAGED}")
            held = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
            check_names(path, held, wanted, optional)
            return finish(
                path,
                {
                    name: _read_member(archive, name, dimensions, path, size)
                    for name, dimensions in wanted.items()
                    if name in held
                },
            )
    except _DAMAGE as error:
        raise SAEFormatError(f"{path} is damaged: {error}. {DAMAGED}") from error


def _read_member(archive: zipfile.ZipFile, name: str, dimensions: int, path: Path, file_size: int) -> Array:
    info = archive.getinfo(f"{name}.npy")
    packed = min(info.compress_size, file_size)
    if info.file_size > max(MAX_RATIO * packed, SMALL):
        raise SAEFormatError(
            f"{path}: {name} claims {info.file_size} bytes from {info.compress_size} packed ones. {DAMAGED}"
        )
    with archive.open(info) as stream:
        shape, fortran, descr = _read_header(stream)
        floats = re.fullmatch(r"[<>=]f[248]", descr) is not None
        check_shape(path, name, shape, descr, dimensions, floats)
        dtype = np.dtype(descr)
        size = math.prod(shape) * dtype.itemsize
        if stream.tell() + size != info.file_size:
            raise SAEFormatError(
                f"{path}: {name} should take {size} bytes by its header, the file has {info.file_size}. {DAMAGED}"
            )
        array = read_exactly(stream, size).view(dtype).reshape(shape, order="F" if fortran else "C")
        stream.read(1)  # the end of the member is where its checksum is compared
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_header(stream: IO[bytes]) -> tuple[tuple[Any, ...], bool, str]:
    """Shape, Fortran order and dtype of a .npy member (NEP 1), of bounded length. Raises ValueError."""
    magic = stream.read(8)
    if magic[:6] != b"\x93NUMPY" or magic[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise ValueError("a member does not begin as a .npy file")
    pattern = "<H" if magic[6] == 1 else "<I"
    (length,) = struct.unpack(
        pattern, stream.read(struct.calcsize(pattern)).ljust(4, b"\0")[: struct.calcsize(pattern)]
    )
    if length > MAX_HEADER:
        raise ValueError(f"the header of a member claims {length} bytes, at most {MAX_HEADER} are accepted")
    try:
        header = ast.literal_eval(stream.read(length).decode("latin-1").strip())
    except (SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError("the header of a member cannot be parsed") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise ValueError("the header of a member has other keys than descr, fortran_order and shape")
    shape, fortran, descr = header["shape"], header["fortran_order"], header["descr"]
    if not isinstance(shape, tuple) or not isinstance(fortran, bool) or not isinstance(descr, str):
        raise ValueError(
            "the header of a member has values of other types than a shape, a truth value and a dtype"
        )
    return shape, fortran, descr
