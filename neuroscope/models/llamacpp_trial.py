"""Whether llama.cpp survives a file: opened once in a process of its own, as it will be run.

llama.cpp checks much of a file and ends the process where an assertion fails, or dies of what it does not check; a
server must not. The verdict is kept with the file's size and time of change.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from os import environ, fsencode, getpid
from pathlib import Path

from neuroscope.errors import ModelError
from neuroscope.models.file_key import file_key
from neuroscope.sources import cache_dir, replace_atomically

TRIAL_S = 600
TRIAL = 2
"""Which trial this is: what an earlier one let pass is tried again."""
CODE = """
import sys
from neuroscope.jobs import end_with_starter
end_with_starter()
from neuroscope.models.llamacpp_model import try_model
try_model(sys.argv[1])
"""


def must_survive(path: Path) -> None:
    """Raises ModelError when a process that opens `path` dies of it. One that ends with an error is none of that."""
    note = cache_dir() / "llamacpp" / f"survived-{file_key(path)}-{version('llama-cpp-python')}-{TRIAL}"
    if note.exists():
        return
    package = str(Path(__file__).parents[2])
    environment = {**environ, "PYTHONPATH": package, "NEUROSCOPE_STARTED_BY": str(getpid())}
    try:
        trial = subprocess.run(
            [sys.executable, "-c", CODE, str(path)],
            env=environment,
            capture_output=True,
            timeout=TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"llama.cpp did not open {path} within {TRIAL_S} s. Fetch or convert the file anew."
        ) from error
    if trial.returncode < 0:
        lines = trial.stderr.decode(errors="replace").strip().splitlines()
        said = next(
            (line for line in lines if "ASSERT" in line or "abort" in line.lower()), "it says nothing"
        )
        raise ModelError(
            f"llama.cpp cannot load {path}: it dies of it ({said}). Fetch or convert the file anew."
        )
    with suppress(OSError), replace_atomically(note) as temporary:
        temporary.write_bytes(fsencode(path) + b"\n")
