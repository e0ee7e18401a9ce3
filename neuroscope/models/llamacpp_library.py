"""llama.cpp as a library: the package llama-cpp-python, quiet, with what it says kept for error messages.

Only its C interface is used (`llama_cpp.llama_cpp`): the package's own classes sample, cache and log their own way.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

from neuroscope.errors import ModelError

log = logging.getLogger(__name__)

INSTALL = "pip install 'neuroscope-sae[llamacpp]'"
WORTH_SAYING = (3, 4)
"""ggml's levels of warnings and errors."""

_said: deque[str] = deque(maxlen=8)
_kept: list[Any] = []
"""Callbacks that C holds must not be collected."""


@cache
def llama() -> Any:
    """The functions of llama.h. Raises ModelError when the package is not installed, or not for this machine."""
    try:
        from llama_cpp import llama_cpp as library
    except ImportError as error:
        raise ModelError(
            f"The backend llamacpp needs llama-cpp-python ({error}). Install it: {INSTALL}"
        ) from error
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"llama-cpp-python is installed but cannot be loaded ({error}). "
            f"Build it for this machine: {INSTALL} --force-reinstall --no-cache-dir"
        ) from error
    # On an abort ggml starts gdb where it finds one, which takes seconds and says nothing to a user.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    listener = library.llama_log_callback(_listen)
    _kept.append(listener)
    library.llama_log_set(listener, None)
    library.llama_backend_init()
    return library


@cache
def ggml() -> ctypes.CDLL:
    """libggml-base, which libllama has loaded: the functions that read tensors."""
    library = llama()
    folder = Path(library.__file__).parent / "lib"
    names = ("libggml-base.so", "libggml-base.dylib", "ggml-base.dll", "libggml-base.dll")
    base = ctypes.CDLL(str(next(path for name in names if (path := folder / name).exists())))
    base.ggml_get_name.argtypes, base.ggml_get_name.restype = [ctypes.c_void_p], ctypes.c_char_p
    base.ggml_nbytes.argtypes, base.ggml_nbytes.restype = [ctypes.c_void_p], ctypes.c_size_t
    sizes = [ctypes.c_size_t, ctypes.c_size_t]
    base.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *sizes]
    base.ggml_backend_tensor_get.restype = None
    return base


def said() -> str:
    """The last warnings and errors of llama.cpp, newest last, as the end of a sentence; they are told once."""
    lines = list(_said)
    _said.clear()
    return "; ".join(lines) or "llama.cpp says no more"


def _listen(level: int, text: bytes, _data: Any) -> None:
    line = text.decode(errors="replace").strip()
    if level in WORTH_SAYING and len(line) > 1:
        _said.append(line)
    if line:
        log.debug("llama.cpp: %s", line)
