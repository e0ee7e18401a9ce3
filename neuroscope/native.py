"""C that is compiled where there is a compiler, once, into the cache; who asks for it must be able to do without.

The sources are the package's own, one file each, and need no other library than C's. A compiled file is named by its
source, its flags and the kind of machine; what a processor has beyond its kind is asked when the code runs, so that
machines which share a cache share the file too.
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

from neuroscope.sources import cache_dir, replace_atomically

log = logging.getLogger(__name__)

FLAGS = ("-O3", "-ffp-contract=off", "-shared", "-fPIC")
"""A product and a sum round once each, as they do in torch and NumPy."""
COMPILE_S = 60


@cache
def compiled(package: str, file: str, without: str) -> ctypes.CDLL | None:
    """The library made of `file` in `package`; None where it cannot be, which is said once in the words `without`."""
    source = resources.files(package).joinpath(file).read_bytes()
    built_for = (*FLAGS, platform.system(), platform.machine(), str(ctypes.sizeof(ctypes.c_void_p)))
    name = hashlib.sha256(source + " ".join(built_for).encode()).hexdigest()[:16]
    path = cache_dir() / "native" / f"{Path(file).stem}-{name}.so"
    try:
        if not path.exists():
            _compile(source, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(
            "%s (%s). Where a C compiler (cc, gcc or clang) is on the path, it is compiled at the next start.",
            without,
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
        command = [compiler, *FLAGS, "-x", "c", "-o", str(temporary), "-", "-lm"]
        subprocess.run(command, input=source, check=True, capture_output=True, timeout=COMPILE_S)
