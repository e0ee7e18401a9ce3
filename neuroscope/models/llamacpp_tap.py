"""The residual stream out of llama.cpp: a callback that keeps the tensor `l_out-L` of every graph.

In C where there is a compiler (`native`), else in Python, which is slower the more layers a small
model has. Both read through ggml, wherever the tensor lives.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroscope.models.llamacpp_library import ggml, llama
from neuroscope.native import compiled

WITHOUT = "The residual is taken by a callback in Python, which slows a small model by a tenth"


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

    def __init__(self, layer: int, rows: int, width: int, *, in_c: bool = True) -> None:
        self._rows: NDArray[np.float32] = np.zeros((rows, width), np.float32)
        self._row_bytes = self._rows[0].nbytes
        base = ggml()
        self._fields = _Fields(
            *(_address(base[name]) for name in ("ggml_get_name", "ggml_nbytes", "ggml_backend_tensor_get")),
            f"l_out-{layer}".encode(),
            self._rows.ctypes.data,
            self._rows.nbytes,
            0,
        )
        function = compiled_tap() if in_c else None
        self.compiled = function is not None
        kind = llama().ggml_backend_sched_eval_callback
        self.callback: Any = kind(self._in_python) if function is None else ctypes.cast(function, kind)
        """For `cb_eval` of a context, which must not outlive this."""
        self.user_data = ctypes.addressof(self._fields)

    def take(self, rows: int) -> NDArray[np.float32] | None:
        """A copy of the residual [rows, width] since the last `take`; None when not as many rows came."""
        filled, self._fields.filled = self._fields.filled, 0
        if filled != rows * self._row_bytes:
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


def compiled_tap() -> Any:
    """The C function; None where it cannot be compiled, which is said once."""
    library = compiled("neuroscope.models", "llamacpp_tap.c", WITHOUT)
    return None if library is None else library.neuroscope_tap


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
