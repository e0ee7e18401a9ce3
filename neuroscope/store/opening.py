"""Opens results.duckdb for reading, once it is known to be the whole file that its manifest describes.

A truncated or replaced database opens without a word.
"""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import ArtefactError
from neuroscope.manifest import Fingerprint
from neuroscope.store.checks import check_against_manifest
from neuroscope.store.connect import attach_read_only
from neuroscope.store.held import HeldFile
from neuroscope.store.results import Results


def open_results(path: Path, *, memory_limit: str = "256MB", check: bool = True) -> Results:
    """Open a results database read-only, one thread, no access to other files.

    Raises ArtefactError when it is missing, when its bytes are not those of the manifest beside it, or when
    it was made by another fingerprint than the manifest says. Whether the fingerprint suits the model is
    the caller's check.
    """
    path = Path(path)
    file = HeldFile(path)
    try:
        expected = check_against_manifest(file) if check else None
        connection = attach_read_only(path, memory_limit, lambda: _refuse_replaced(file))
        results = Results(path, connection, file)
    except BaseException:
        file.close()
        raise
    try:
        _refuse_other_runs(results, file, expected)
    except BaseException:
        results.close()
        raise
    return results


def _refuse_other_runs(results: Results, file: HeldFile, expected: Fingerprint | None) -> None:
    _refuse_replaced(file)  # what was compared with the manifest need not be what DuckDB has opened
    if expected is not None and (differences := results.fingerprint().mismatches(expected)):
        raise ArtefactError(
            f"{results.path} and its manifest were made by different runs: {'; '.join(differences)}. "
            "Delete both, then make them anew with `snakemake --cores 4 labels`."
        )


def _refuse_replaced(file: HeldFile) -> None:
    if not file.is_at_its_path():
        raise ArtefactError(f"{file.path} is being replaced at this moment. Open it again.")
