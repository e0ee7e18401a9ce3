"""`neuroscope doctor` on machines where something is broken: it comes to its end and names what it is."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from fakes.hub_machine import unused_port

from neuroscope.cli import main
from neuroscope.doctor import machine
from neuroscope.doctor.torch_build import Torch, look_at_torch

ROOT = Path(__file__).parents[2]
LOOK_AT_TORCH = "neuroscope.doctor.examination.look_at_torch"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the embedded pairing, on ports that nobody has, as the working directory."""
    for name in [*os.environ]:
        if name.startswith(("NEUROSCOPE_", "HF_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    folder = tmp_path / "checkout"
    for name in ("config", "workflow/schemas"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "workflow/resources").symlink_to(ROOT / "workflow/resources")
    configure(folder, "  port: 8080", f"  port: {unused_port()}")
    configure(folder, "  features_port: 8081", f"  features_port: {unused_port()}")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "smollm2-135m")
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    # Importing PyTorch is tested elsewhere and takes seconds.
    monkeypatch.setattr(LOOK_AT_TORCH, lambda _: Torch("2.13.0", "CPU only"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


def configure(folder: Path, before: str, after: str) -> None:
    path = folder / "config/config.yaml"
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


Report = Callable[..., dict[str, Any]]


@pytest.fixture
def report(checkout: Path, capsys: pytest.CaptureFixture[str]) -> Report:
    """Runs the command and reads what it says."""

    def run(*words: str) -> dict[str, Any]:
        code = main(["doctor", "--json", *words])
        said = capsys.readouterr()
        assert said.err == ""
        found: dict[str, Any] = json.loads(said.out)
        assert code == (1 if found["blocked"] else 0)
        return found

    return run


def line(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(check for check in found["checks"] if check["name"] == name)


def problems(found: dict[str, Any]) -> list[str]:
    return [check["name"] for check in found["checks"] if check["status"] == "problem"]


def test_where_all_is_well_the_next_step_is_named(report: Report) -> None:
    found = report()
    assert problems(found) == []
    assert [check for check in found["checks"] if "itself failed" in check["found"]] == []
    program, *words = shlex.split(found["next"])
    assert Path(program).name == "neuroscope"
    assert words == ["labels", "generate"]
    assert line(found, "results")["found"].startswith("none in ")


@pytest.mark.usefixtures("checkout")
def test_the_report_for_people_ends_with_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0].startswith("ok       Python")
    assert "Nothing is in the way." in lines
    assert lines[-2].startswith("Next: ")
    for text in lines:  # a path stays whole, however long
        assert len(" ".join(word for word in text.split(" ") if os.sep not in word)) <= 120


def test_a_pairing_by_flag_is_in_the_next_command(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "gemma-2-2b-it")
    found = report("--pairing", "smollm2-135m")
    assert shlex.split(found["next"])[1:] == ["labels", "generate", "--pairing", "smollm2-135m"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("device: auto", "devise: auto", "devise is not a setting. Did you mean device?"),
        ("device: auto", "device: [", "is not YAML"),
        ("device: auto", "device: 7", "device is 7"),
        ("  top_k: 10", "  top_k: 1e999", "top_k"),
    ],
)
def test_an_invalid_configuration_is_told_and_the_rest_is_looked_at(
    report: Report, checkout: Path, before: str, after: str, words: str
) -> None:
    configure(checkout, before, after)
    found = report()
    assert line(found, "configuration")["status"] == "problem"
    assert words in line(found, "configuration")["found"]
    assert line(found, "ports")["found"] == "not looked at: the configuration cannot be read"
    assert line(found, "processor")["status"] == "ok"
    assert found["next"] == "git diff config"


def test_configurations_of_other_encodings_and_cut_short_are_told(report: Report, checkout: Path) -> None:
    path = checkout / "config/config.yaml"
    whole = path.read_bytes()
    for content in (b"\xff\xfe\x00d", whole[:2000] + b"\nlabels: {", b"- a list\n", b"\x00" * 100):
        path.write_bytes(content)
        assert line(report(), "configuration")["status"] == "problem", content[:20]


def test_an_unknown_pairing_and_a_broken_pairing_file_are_told(
    report: Report, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "config/pairings/mine.yaml").write_text("layer: high\n")
    found = report()
    broken = [check for check in found["checks"] if check["name"] == "pairings"][1]
    assert (broken["status"], "mine.yaml" in broken["found"]) == ("note", True)
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "smollm")
    found = report()
    assert "There is no pairing 'smollm'" in line(found, "configuration")["found"]
    assert found["next"] == "export NEUROSCOPE_PAIRING=smollm2-135m"
    assert main(["doctor"]) == 1
    assert ".. Wanted" not in " ".join(capsys.readouterr().out.split())


def test_without_a_configuration_at_all_it_comes_to_its_end(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCOPE_CONFIG", "/nowhere/config.yaml")
    found = report()
    assert "configuration" in problems(found)
    assert found["next"] == "unset NEUROSCOPE_CONFIG"


def test_a_pytorch_that_cannot_be_imported_stops_nothing_else(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libtorch_cpu.so: cannot open shared object file')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(LOOK_AT_TORCH, look_at_torch)
    found = report()
    assert problems(found) == ["PyTorch"]
    assert "libtorch_cpu.so" in line(found, "PyTorch")["found"]
    assert found["next"] == "./install.sh"
    assert not [check for check in found["checks"] if "itself failed" in check["found"]]


def test_without_a_home_folder_it_comes_to_its_end(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "NEUROSCOPE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = report()
    for name in ("disk", "cache"):
        assert "RuntimeError: Could not determine home directory" in line(found, name)["found"]
    assert line(found, "processor")["status"] == "ok"


def test_a_cache_that_is_a_file_is_a_problem(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "occupied"
    file.touch()
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(file))
    found = report()
    assert line(found, "disk, cache")["found"] == f"{file} is a file"
    assert found["next"] == "export NEUROSCOPE_CACHE=/path/on/another/disk"


def test_a_cache_that_cannot_be_read_is_told_by_the_check_it_breaks(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    (tmp_path / "cache/converted").mkdir(parents=True)
    monkeypatch.setattr(Path, "iterdir", refuse)
    found = report()
    assert line(found, "cache")["status"] == "note"
    assert "Permission denied" in line(found, "cache")["found"]
    assert line(found, "variables")["status"] == "ok"


def test_a_missing_package_is_told_by_name(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if name == "duckdb":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(machine, "version", installed)
    assert line(report(), "packages")["found"] == "missing: duckdb"


@pytest.mark.usefixtures("checkout")
def test_no_secret_is_ever_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "NEUROSCOPE_API_KEY": "server-key-123456",
        "ANTHROPIC_API_KEY": "sk-ant-api-123456",
        "HF_TOKEN": "hf_token_123456",
        "NEUROSCOPE_API_KY": "misspelt-key-123456",
        "NEUROSCOPE_CACHE": "/nowhere/server-key-123456",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    for words in ((), ("--json",)):
        main(["doctor", *words])
        said = "".join(capsys.readouterr())
        assert "/nowhere/(hidden)" in said
        assert not [value for value in secrets.values() if value in said]


@pytest.mark.parametrize("content", [b"", b"not a database", b"x" * 5000])
def test_damaged_results_are_a_problem_with_the_command_that_replaces_them(
    report: Report, checkout: Path, content: bytes
) -> None:
    results = checkout / "results/smollm2-135m"
    results.mkdir(parents=True)
    (results / "results.duckdb").write_bytes(content)
    found = report()
    assert problems(found) == ["results"]
    assert "manifest.json is missing" in line(found, "results")["found"]


def test_a_pipe_in_the_place_of_results_does_not_hold_it_up(report: Report, checkout: Path) -> None:
    results = checkout / "results/smollm2-135m"
    results.mkdir(parents=True)
    os.mkfifo(results / "results.duckdb")
    assert problems(report()) == ["results"]


def test_a_run_that_was_cut_short_and_one_at_work_are_told(report: Report, checkout: Path) -> None:
    results = checkout / "results/smollm2-135m"
    (results / "logs").mkdir(parents=True)
    (results / ".run.lock").write_text("123 token\n")
    assert "was cut short" in line(report(), "pipeline")["found"]
    (results / "logs/sweep.failure").write_text(
        "The disk is full: /x could not be written.", encoding="utf-8"
    )
    assert "The disk is full" in line(report(), "pipeline")["found"]
    code = "import sys; from neuroscope import jobs; jobs.hold(sys.argv[1]); print('held', flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.stdin.read()", str(results)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as working:
        assert working.stdout is not None
        working.stdout.readline()
        found = report()
        assert f"(process {working.pid})" in line(found, "pipeline")["found"]
        assert found["next"].startswith("tail -f ")
        working.communicate()


def test_the_module_runs_where_no_package_is_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _BARE],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "missing: torch, transformers" in done.stdout
    assert "Next: ./install.sh\n" in done.stdout


_BARE = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["neuroscope.doctor"]
runpy.run_module("neuroscope.doctor", run_name="__main__")
"""
