"""Reads the arrays of an NPZ file that nobody vouches for: checked before a byte is allocated, never unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from neuroscope.errors import SAEFormatError

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError, RuntimeError)
MAX_RATIO = 64
"""Float weights hardly compress; a member that unpacks to more than this many times its size is a bomb."""


def read_npz(
    path: Path, wanted: Mapping[str, int], *, optional: frozenset[str] = frozenset()
) -> dict[str, np.ndarray]:
    """The arrays named in `wanted` (name -> number of dimensions), as finite float32.

    Raises SAEFormatError, naming the file and what was found, when the file is not an NPZ (an HTML page or Git-LFS
    pointer is called what it is), lacks an array, holds one twice, of another shape or kind, or is not whole.
    """
    _check_magic(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            if len(set(members)) != len(members):
                raise SAEFormatError(f"{path} holds an array twice: {sorted(members)}. Download it again.")
            missing = [name for name in wanted if f"{name}.npy" not in members and name not in optional]
            if missing:
                raise SAEFormatError(
                    f"{path} lacks {', '.join(missing)}; it holds {', '.join(sorted(members)) or 'nothing'}. "
                    f"This format needs {', '.join(wanted)}."
                )
            return {
                name: _read_member(archive, name, dimensions, path)
                for name, dimensions in wanted.items()
                if f"{name}.npy" in members
            }
    except _DAMAGE as error:
        raise SAEFormatError(f"{path} is damaged: {error}. Delete it and download it again.") from error


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            head = stream.read(512)
    except OSError as error:
        raise SAEFormatError(f"{path} cannot be read: {error.strerror}.") from error
    if head.startswith(b"PK\x03\x04"):
        return
    what = "not an NPZ file"
    if head.startswith(b"version https://git-lfs"):
        what = "a Git-LFS pointer, not the file it points to; fetch it with: git lfs pull"
    elif head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        what = "an HTML page, not an NPZ file: the download was answered by a web page"
    elif not head:
        what = "empty"
    raise SAEFormatError(f"{path} is {what}.")


def _read_member(archive: zipfile.ZipFile, name: str, dimensions: int, path: Path) -> np.ndarray:
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MAX_RATIO * max(info.compress_size, 1):
        raise SAEFormatError(
            f"{path}: {name} claims {info.file_size} bytes from {info.compress_size} packed ones."
        )
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(stream)
        if dtype.kind != "f" or len(shape) != dimensions or 0 in shape:
            raise SAEFormatError(
                f"{path}: {name} has shape {shape} and dtype {dtype}; expected {dimensions} dimensions of floats."
            )
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if stream.tell() + size != info.file_size:
            raise SAEFormatError(
                f"{path}: {name} should take {size} bytes by its header, the file has {info.file_size}."
            )
        array = np.frombuffer(bytearray(stream.read(size)), dtype=dtype).reshape(
            shape, order="F" if fortran else "C"
        )
    array = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(array)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise SAEFormatError(
            f"{path}: {name} holds {int((~finite).sum())} NaN or infinite values, the first at {first}."
        )
    return array
