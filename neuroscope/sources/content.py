"""Tells what a file really is when it is not what its name says."""

from __future__ import annotations

from pathlib import Path

_POINTER = b"version https://git-lfs.github.com/spec/v1"
_HTML = (b"<!doctype html", b"<html")
_TEXT = {".html", ".htm", ".xhtml", ".txt", ".md", ".rst", ".csv", ".jsonl", ".yml", ".yaml", ".py"}
"""Files in which a user may well keep HTML."""


def impostor(path: Path) -> str | None:
    """`an HTML page` or `a Git LFS pointer` when that is what the file holds instead of its content."""
    with path.open("rb") as file:
        start = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(_POINTER):
        return "a Git LFS pointer, not the file it points at"
    if start.startswith(_HTML) and path.suffix.lower() not in _TEXT:
        return "an HTML page, such as a login or error page"
    return None
