"""Reads the arrays of a torch file that nobody vouches for: a zip of tensors and one pickle.

Nothing is left to the pickle: its directory and opcodes are checked first, then torch reads it with weights_only.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neuroscope.errors import SAEFormatError
from neuroscope.sae.checks import DAMAGED, Array, check_names, check_shape, check_start, finish

MAX_PICKLE = 1 << 20
"""Bytes of data.pkl: an SAE's has a few names and shapes in it."""
_CALLED = {
    "collections OrderedDict",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
}
_STORAGES = {
    f"torch {kind}Storage" for kind in ("BFloat16", "Bool", "Byte", "Double", "Float", "Half", "Int", "Long")
}
_DAMAGE = (
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    OverflowError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_torch(
    path: Path, wanted: Mapping[str, int], *, optional: frozenset[str] = frozenset()
) -> dict[str, Array]:
    """The arrays named in `wanted` (name -> number of dimensions), finite, as float32 or float64.

    0 dimensions is a number, whole or not, a tensor or not; it comes as a float64 array of shape (). Raises
    SAEFormatError that names the file and what was found; no code of the file runs.
    """
    values = _load(path)
    check_names(path, values, wanted, optional)
    return finish(
        path,
        {
            name: _array(path, name, values[name], dimensions)
            for name, dimensions in wanted.items()
            if name in values
        },
    )


def _load(path: Path) -> dict[str, Any]:
    size = check_start(path, "a torch zip file", b"PK\x03\x04")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_directory(path, archive, size)
            _check_pickle(path, archive)
        with warnings.catch_warnings(action="ignore"):
            values = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        raise SAEFormatError(f"{path} is damaged: {str(error)[:200]}. {DAMAGED}") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise SAEFormatError(f"{path} does not hold named tensors. Check sae.path and sae.format.")
    return values


def _check_directory(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    """torch stores its records unpacked and once: so each name is unique and the sizes fit the file."""
    members = archive.infolist()
    if len({member.filename for member in members}) != len(members):
        raise SAEFormatError(f"{path} holds a record twice. {DAMAGED}")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise SAEFormatError(f"{path} holds a compressed record, which torch never writes. {DAMAGED}")
    claimed = sum(member.file_size for member in members)
    if claimed > size:
        raise SAEFormatError(f"{path}: its records claim {claimed} bytes, the file has {size}. {DAMAGED}")


def _check_pickle(path: Path, archive: zipfile.ZipFile) -> None:
    """Only rebuilding tensors may be asked for: torch's own list has more, such as an allocation of any size."""
    names = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(names) != 1:
        raise SAEFormatError(f"{path} is a zip archive, but not one that torch saved. Check sae.format.")
    if archive.getinfo(names[0]).file_size > MAX_PICKLE:
        raise SAEFormatError(
            f"{path}: its pickle is longer than {MAX_PICKLE} bytes; an SAE's is not. {DAMAGED}"
        )
    for opcode, argument, _ in pickletools.genops(archive.read(names[0])):
        if opcode.name in ("GLOBAL", "INST") and argument not in _CALLED | _STORAGES:
            raise SAEFormatError(
                f"{path} is not only weights: its pickle asks for {str(argument).replace(' ', '.')[:80]}. "
                "It was not run. Do not load this file elsewhere either."
            )
        if opcode.name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX", "BYTEARRAY8"):
            raise SAEFormatError(
                f"{path}: its pickle uses {opcode.name}, which torch never writes. {DAMAGED}"
            )


def _array(path: Path, name: str, value: Any, dimensions: int) -> Array:
    if dimensions == 0 and isinstance(value, int | float):
        value = torch.tensor(value, dtype=torch.float64)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_complex():
        raise SAEFormatError(f"{path}: {name} is {type(value).__name__}, not a tensor. Check sae.format.")
    value = value.detach()
    floats = value.is_floating_point() or dimensions == 0
    check_shape(path, name, value.shape, str(value.dtype).removeprefix("torch."), dimensions, floats)
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise SAEFormatError(f"{path}: {name} has more values than are stored. {DAMAGED}")
    wide = value.dtype == torch.float64 or dimensions == 0
    array: Array = value.to(torch.float64 if wide else torch.float32).contiguous().numpy()
    return np.ascontiguousarray(array).reshape(array.shape)
