"""Finds a release's weights from the path to the file or to its folder."""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SAEFormatError


def weights_file(path: Path, pattern: str) -> Path:
    """`path` itself when it is a file, else the one file below it that matches `pattern`.

    Raises SAEFormatError that lists what the folder holds when there is none, or the candidates when there are more.
    """
    if not path.is_dir():
        return path
    found = sorted(path.glob(pattern))
    if len(found) == 1:
        return found[0]
    if found:
        raise SAEFormatError(f"{path} holds {_listed(found)}. Let sae.path name one of them.")
    raise SAEFormatError(
        f"{path} holds no {pattern}, but {_listed(sorted(path.iterdir())) or 'nothing'}. Check sae.path and sae.format."
    )


def _listed(files: list[Path]) -> str:
    more = f" and {len(files) - 8} more" if len(files) > 8 else ""
    return ", ".join(file.name for file in files[:8]) + more
