"""The residual stream out of llama.cpp: a callback that keeps the tensor `l_out-L` of every graph.

Compiled where there is a C compiler, once, into the cache; else in Python, which is slower the more layers a small
model has. Both read through ggml, wherever the tensor lives.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroscope.models.llamacpp_library import ggml, llama
from neuroscope.sources import cache_dir, replace_atomically

log = logging.getLogger(__name__)

COMPILE_S = 60


class _Fields(ctypes.Structure):
    """`struct tap` of llamacpp_tap.c."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("nbytes", ctypes.c_void_p),
        ("get", ctypes.c_void_p),
        ("wanted", ctypes.c_char_p),
        ("rows", ctypes.c_void_p),
        ("capacity", ctypes.c_size_t),
        ("filled", ctypes.c_size_t),
    )


class Tap:
    """Keeps what `l_out-{layer}` is in each graph, up to `rows` positions between two calls of `take`."""

    def __init__(self, layer: int, rows: int, width: int, *, compiled: bool = True) -> None:
        self._rows: NDArray[np.float32] = np.zeros((rows, width), np.float32)
        base = ggml()
        self._fields = _Fields(
            *(_address(base[name]) for name in ("ggml_get_name", "ggml_nbytes", "ggml_backend_tensor_get")),
            f"l_out-{layer}".encode(),
            self._rows.ctypes.data,
            self._rows.nbytes,
            0,
        )
        function = compiled_tap() if compiled else None
        self.compiled = function is not None
        kind = llama().ggml_backend_sched_eval_callback
        self.callback: Any = kind(self._in_python) if function is None else ctypes.cast(function, kind)
        """For `cb_eval` of a context, which must not outlive this."""
        self.user_data = ctypes.addressof(self._fields)

    def take(self, rows: int) -> NDArray[np.float32] | None:
        """A copy of the residual [rows, width] since the last `take`; None when not as many rows came."""
        filled, self._fields.filled = self._fields.filled, 0
        if filled != rows * self._rows.itemsize * self._rows.shape[1]:
            return None
        return self._rows[:rows].copy()

    def _in_python(self, tensor: int, ask: bool, _data: Any) -> bool:
        base, fields = ggml(), self._fields
        if base.ggml_get_name(tensor) != fields.wanted:
            return False
        if not ask:
            size = base.ggml_nbytes(tensor)
            if fields.filled + size <= fields.capacity:
                base.ggml_backend_tensor_get(tensor, fields.rows + fields.filled, 0, size)
            fields.filled += size
        return True


@cache
def compiled_tap() -> Any:
    """The C function; None where it cannot be compiled, which is said once."""
    source = resources.files("neuroscope.models").joinpath("llamacpp_tap.c").read_bytes()
    built_for = f"{platform.system()}-{platform.machine()}-{ctypes.sizeof(ctypes.c_void_p)}"
    name = hashlib.sha256(source + built_for.encode()).hexdigest()[:16]
    path = cache_dir() / "llamacpp" / f"tap-{name}.so"
    try:
        if not path.exists():
            _compile(source, path)
        return ctypes.CDLL(str(path)).neuroscope_tap
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        log.warning(
            "The residual is taken by a callback in Python, which slows a small model by a tenth (%s). "
            "Where a C compiler (cc, gcc or clang) is on the path, it is compiled at the next start.",
            error,
        )
        return None


def _compile(source: bytes, path: Path) -> None:
    """Raises OSError without a compiler, SubprocessError when it fails."""
    chosen = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    compiler = next((found for name in chosen if (found := shutil.which(name))), None)
    if compiler is None:
        raise OSError(f"no C compiler is on the path: none of {', '.join(chosen)}")
    with replace_atomically(path) as temporary:
        command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-o", str(temporary), "-"]
        subprocess.run(command, input=source, check=True, capture_output=True, timeout=COMPILE_S)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
