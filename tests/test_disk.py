"""A disk that refuses is told in words: the file, the room that is left and what to do, whichever library met it."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from neuroscope.disk import disk_failure
from neuroscope.errors import CorpusError

WRITERS = {
    "plain": "temporary.write_bytes(bytes(1 << 20))",
    "numpy": "import numpy; numpy.savez(temporary.open('wb'), x=numpy.zeros(1 << 18))",
    "polars": "import polars; polars.DataFrame({'x': range(1 << 20)}).write_parquet(temporary, compression='lz4')",
    "duckdb": """
import duckdb
with duckdb.connect(str(temporary)) as connection:
    connection.sql("CREATE TABLE t AS SELECT random() AS x FROM range(400000)")
    connection.sql("CHECKPOINT")""",
}
WRITE = """
import sys
from pathlib import Path
from neuroscope.disk import disk_failure
from neuroscope.sources import replace_atomically
path = Path(sys.argv[1])
try:
    with replace_atomically(path) as temporary:
        exec(sys.argv[2])
except Exception as error:
    print(disk_failure(error, path.parent))
"""


@pytest.mark.parametrize("library", WRITERS)
def test_a_write_that_finds_no_room_names_the_file_and_what_to_do(library: str, tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk: the system's word for it is another, its way the same."""
    path = tmp_path / "features.bin"
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(path), WRITERS[library]],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"The disk is full: {path} could not be written")
    assert f"MB free in {tmp_path}. Free some space, then run the same command again" in done.stdout
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_of_somebody_else_is_another_sentence(number: int, tmp_path: Path) -> None:
    error = disk_failure(PermissionError(number, "no", str(tmp_path / "x")), tmp_path / "not/yet")
    assert str(error).startswith(f"The disk may not be written: {tmp_path}/x could not be written (no)")
    assert "Give yourself the right to write there, then run" in str(error)


def test_the_cause_counts_and_other_failures_stay_what_they_are(tmp_path: Path) -> None:
    error = RuntimeError("writing failed")
    error.__cause__ = OSError(errno.ENOSPC, "full", "/x")
    assert "/x could not be written (full)" in str(disk_failure(error, tmp_path))
    assert disk_failure(FileNotFoundError(errno.ENOENT, "none", "/x"), tmp_path) is None
    assert disk_failure(CorpusError("Permission denied"), tmp_path) is None
    assert disk_failure(ZeroDivisionError("by zero"), tmp_path) is None
