"""`make clean` and its kin, in a copy: what each removes, and that results go only after a yes."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = "results/tiny/results.duckdb"
CACHES = {
    ".mypy_cache/a",
    ".ruff_cache/a",
    ".pytest_cache/a",
    "build/a",
    "dist/a",
    "neuroscope/__pycache__/a.pyc",
}
KEPT = {"Makefile", ".venv/bin/python", ".snakemake/a", "neuroscope/a.py", RESULTS}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    for name in (CACHES | KEPT | {"results/.gitkeep", ".venv/lib/__pycache__/a.pyc"}) - {"Makefile"}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    shutil.copy(ROOT / "Makefile", folder)
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_clean_removes_caches_and_leaves_results_downloads_and_the_environment(copy: Path) -> None:
    assert make(copy, "clean").returncode == 0
    assert files(copy) == KEPT | {"results/.gitkeep", ".venv/lib/__pycache__/a.pyc"}


def test_distclean_removes_the_environment_too_and_leaves_results(copy: Path) -> None:
    assert make(copy, "distclean").returncode == 0
    assert files(copy) == KEPT - {".venv/bin/python"} | {"results/.gitkeep"}


def test_results_are_not_removed_where_nobody_can_be_asked(copy: Path) -> None:
    done = make(copy, "cleanresults")
    assert done.returncode != 0
    assert "make cleanresults YES=1" in done.stderr
    assert "results/tiny" in done.stderr, "what it is about is listed"
    assert RESULTS in files(copy)
    assert make(copy, "cleanresults", "YES=1").returncode == 0
    assert not {RESULTS, ".snakemake/a"} & files(copy)
    assert {"results/.gitkeep", ".venv/bin/python"} <= files(copy)


@pytest.mark.parametrize(
    ("answer", "left"), [("y\n", False), ("n\n", True), ("\n", True), ("yes please\n", True)]
)
def test_a_terminal_is_asked_before_results_go(copy: Path, answer: str, left: bool) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(["make", "cleanresults"], cwd=copy, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = ""
    while "[y/N]" not in said:
        said += os.read(ours, 4096).decode()
    os.write(ours, answer.encode())
    process.wait(timeout=30)
    os.close(ours)
    assert (process.returncode != 0) == left
    assert (RESULTS in files(copy)) == left


def test_help_says_what_each_removes() -> None:
    said = make(ROOT, "help").stdout
    assert "make clean" in said
    assert "results, downloads and .venv stay" in said
    assert "make cleanresults" in said
    assert "make distclean" in said
