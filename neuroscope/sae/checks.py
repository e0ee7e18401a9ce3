"""What every reader of weights asks of a file nobody vouches for; which container it is, is the reader's business."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from neuroscope.errors import SAEFormatError
from neuroscope.sources.content import impostor

Array = NDArray[Any]
"""Weights as they lie in a file: float32, or float64 where the file has that."""

DAMAGED = "Delete it and download it again."
_BLOCK = 1 << 20
_CONTAINERS = {
    b"PK\x03\x04": "a zip archive (an NPZ or a torch file)",
    b"\x80": "a bare Python pickle",
    b"\x93NUMPY": "a single NumPy array",
    b"GGUF": "a GGUF model",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "gzip-compressed",
}


def check_start(path: Path, kind: str, starts: bytes, *, at: int = 0) -> int:
    """The size of `path` in bytes, after seeing that it has `starts` at byte `at`, as `kind` has.

    Raises SAEFormatError that calls an HTML page, a Git LFS pointer or another container what it is.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
        size = path.stat().st_size
        if head[at:].startswith(starts):
            return size
        content = impostor(path)
    except OSError as error:
        raise SAEFormatError(f"{path} cannot be read: {error.strerror}.") from error
    if content is not None:
        remedy = "Fetch it with `git lfs pull`." if "LFS" in content else "Download it again, logged in."
        raise SAEFormatError(f"{path} is {content}, not {kind}. {remedy}")
    if not head:
        raise SAEFormatError(f"{path} is empty. {DAMAGED}")
    found = [name for magic, name in _CONTAINERS.items() if head.startswith(magic)]
    raise SAEFormatError(
        f"{path} is {found[0] + ', ' if found else ''}not {kind}. Check sae.path and sae.format."
    )


def check_names(path: Path, present: Iterable[str], wanted: Iterable[str], optional: Iterable[str]) -> None:
    """Raises SAEFormatError that lists what is there when an array of `wanted` but not `optional` is missing."""
    held = sorted(present)
    missing = [name for name in wanted if name not in held and name not in set(optional)]
    if missing:
        shown = ", ".join(name[:60] for name in held[:12]) + (
            f" and {len(held) - 12} more" if len(held) > 12 else ""
        )
        raise SAEFormatError(
            f"{path} lacks {', '.join(missing)}; it holds {shown or 'nothing'}. Check sae.path and sae.format."
        )


def check_shape(
    path: Path, name: str, shape: Iterable[Any], dtype: str, dimensions: int, floats: bool
) -> None:
    """Raises SAEFormatError unless `name` has `dimensions` dimensions, none of them empty, of a float type."""
    sides = tuple(shape)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides)
    if not floats or len(sides) != dimensions or not whole:
        raise SAEFormatError(
            f"{path}: {name} has shape {str(sides)[:80]} and dtype {dtype[:20]}; "
            f"expected {dimensions} dimensions of floats. Check sae.format."
        )


def check_finite(path: Path, name: str, array: Array) -> None:
    """Raises SAEFormatError with the count and the first index of values that are NaN or infinite."""
    finite = np.isfinite(array)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise SAEFormatError(
            f"{path}: {name} holds {int((~finite).sum())} NaN or infinite values, the first at {first}. {DAMAGED}"
        )


def check_not_negative(path: Path, name: str, array: Array) -> None:
    """Raises SAEFormatError with the count and the first feature whose `array` [d_sae] value is negative."""
    negative = np.flatnonzero(array < 0)
    if len(negative):
        raise SAEFormatError(
            f"{path}: {len(negative)} values of {name} are negative, the first at feature {negative[0]}. {DAMAGED}"
        )


def whole_number(path: Path, name: str, array: Array) -> int:
    """The whole number that `array` [] holds. Raises SAEFormatError when it is another."""
    if array != np.floor(array) or not 0 <= array < 1 << 48:
        raise SAEFormatError(f"{path}: {name} is {array}, must be a whole number of 0 or more. {DAMAGED}")
    return int(array)


def read_exactly(stream: IO[bytes], size: int) -> NDArray[np.uint8]:
    """`size` bytes of `stream`, allocated once. `size` must already be known to fit the file. Raises EOFError."""
    buffer = np.empty(size, np.uint8)
    view = memoryview(buffer.data)
    done = 0
    while done < size:
        block = stream.read(min(_BLOCK, size - done))
        if not block:
            raise EOFError(f"{size - done} bytes are missing at the end")
        view[done : done + len(block)] = block
        done += len(block)
    return buffer


def finish(path: Path, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays as finite float32, float64 where they were that."""
    for name, array in arrays.items():
        check_finite(path, name, array)
    return {
        name: array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
        for name, array in arrays.items()
    }
