"""What may be wrong with a results folder: how it comes about, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from neuroscope.sources import file_sha256


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def manifest(folder: Path, content: str | bytes) -> None:
    (folder / "manifest.json").write_bytes(content if isinstance(content, bytes) else content.encode())


def edited(folder: Path, **fields: Any) -> None:
    tree = json.loads((folder / "manifest.json").read_text())
    manifest(folder, json.dumps({**tree, **fields}))


def older(folder: Path) -> None:
    tree = json.loads((folder / "manifest.json").read_text())
    del tree["fingerprint"]["input_norm"]
    manifest(folder, json.dumps(tree))


def replace_by(folder: Path, make: Callable[[Path], object], name: str = "results.duckdb") -> None:
    (folder / name).unlink()
    make(folder / name)


def vouched(folder: Path) -> None:
    """The manifest's sum becomes that of whatever lies there."""
    edited(folder, files={"results.duckdb": {"sha256": file_sha256(folder / "results.duckdb"), "rows": None}})


def other_tables(folder: Path) -> None:
    """A database of another program, with a manifest that vouches for it."""

    with duckdb.connect(str(folder / "other.duckdb")) as connection:
        connection.execute("CREATE TABLE meta (key VARCHAR, value VARCHAR)")
    (folder / "other.duckdb").replace(folder / "results.duckdb")
    vouched(folder)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "There is no results database at"),
    "truncated": (
        lambda f: rewrite(f / "results.duckdb", lambda b: b[:-4096]),
        "results.duckdb is not the file that",
    ),
    "zeros": (
        lambda f: rewrite(f / "results.duckdb", lambda b: bytes(len(b))),
        "results.duckdb is not the file that",
    ),
    "html": (
        lambda f: rewrite(f / "results.duckdb", lambda _: b"<html>"),
        "results.duckdb is not the file that",
    ),
    "empty": (lambda f: rewrite(f / "results.duckdb", lambda _: b""), "results.duckdb is not the file that"),
    "a log left": (lambda f: (f / "results.duckdb.wal").touch(), "results.duckdb.wal is left"),
    "a folder": (lambda f: replace_by(f, Path.mkdir), "results.duckdb is a folder, not a results database"),
    "a loop": (lambda f: replace_by(f, lambda p: p.symlink_to(p.name)), "Too many levels of symbolic links"),
    "a broken link": (
        lambda f: replace_by(f, lambda p: p.symlink_to("away")),
        "There is no results database at",
    ),
    "a pipe": (lambda f: replace_by(f, os.mkfifo), "results.duckdb is no file that can be read twice"),
    "html that is vouched for": (
        lambda f: (rewrite(f / "results.duckdb", lambda _: b"<html>" * 5000), vouched(f)),
        "results.duckdb cannot be opened as a results database",
    ),
    "other tables": (other_tables, "results.duckdb does not say what made it"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json is missing"),
    "an empty manifest": (lambda f: manifest(f, ""), "manifest.json cannot be read"),
    "a manifest of text": (lambda f: manifest(f, "<html>"), "manifest.json cannot be read"),
    "a manifest of bytes": (lambda f: manifest(f, b"\xff\xfe\x00"), "manifest.json cannot be read"),
    "a list": (lambda f: manifest(f, "[]"), "manifest.json must hold an object, found a list"),
    "a number": (lambda f: manifest(f, "NaN"), "manifest.json must hold an object, found a float"),
    "a long number": (lambda f: manifest(f, "9" * 5000), "manifest.json cannot be read"),
    "a deep list": (lambda f: manifest(f, "[" * 100_000), "manifest.json cannot be read"),
    "files of null": (lambda f: edited(f, files=None), "manifest.json is not a manifest"),
    "a file of NaN": (
        lambda f: edited(f, files={"results.duckdb": {"sha256": float("nan")}}),
        "is not the file that",
    ),
    "no fingerprint": (lambda f: edited(f, fingerprint=None), "manifest.json is not of this version"),
    "an older fingerprint": (older, "manifest.json is not of this version (differs in: input_norm)"),
    "a folder of a manifest": (lambda f: replace_by(f, Path.mkdir, "manifest.json"), "it is no regular file"),
    "a pipe of a manifest": (lambda f: replace_by(f, os.mkfifo, "manifest.json"), "it is no regular file"),
}
