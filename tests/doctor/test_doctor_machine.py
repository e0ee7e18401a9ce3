"""The lines that need nothing but the standard library: Python, system, packages, processor, PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from neuroscope.doctor import machine
from neuroscope.doctor.torch_build import Device, Torch, look_at_torch, torch_check

ROOT = Path(__file__).parents[2]


def test_an_old_python_is_a_problem_with_the_oldest_that_will_do() -> None:
    check = machine.python_version((3, 10, 14))
    assert (check.status, check.found, check.wanted) == ("problem", "3.10.14", "3.11 or newer")
    assert check.next == "make demo PYTHON=/path/to/python3.12"
    assert machine.python_version((3, 11, 0)).status == "ok"


@pytest.mark.parametrize(
    ("system", "release", "processor", "status", "words"),
    [
        ("Linux", "6.1.0-18-amd64", "x86_64", "ok", "tested"),
        ("Linux", "5.15.153.1-microsoft-standard-WSL2", "x86_64", "note", "Windows (WSL), untested"),
        ("Linux", "6.1.0", "aarch64", "note", "untested"),
        ("Darwin", "24.1.0", "arm64", "note", "macOS 24.1.0, arm64: untested"),
        ("FreeBSD", "14.1", "amd64", "note", "untested"),
        ("Windows", "10", "AMD64", "problem", "Windows 10"),
    ],
)
def test_systems_are_named_as_tested_or_untested(
    system: str, release: str, processor: str, status: str, words: str
) -> None:
    check = machine.operating_system(system, release, processor)
    assert (check.status, words in check.found) == (status, True), check


def test_packages_are_compared_with_pyproject_by_number() -> None:
    there = {"torch": "2.9.1+cpu", "flask": "3.10.0", "jinja2": "3.1"}

    def installed(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    named = ("torch>=2.10", "flask>=3.9", "jinja2>=3.1.0", "gunicorn[gevent]>=23")
    check = machine.packages(installed=installed, named=named)
    assert check.status == "problem"
    assert check.found == "missing: gunicorn; torch 2.9.1+cpu (wanted 2.10 or newer)"
    there |= {"torch": "2.10.0rc1", "gunicorn": "23.0"}
    assert machine.packages(installed=installed, named=named).found == "all 4 as pyproject.toml asks for"


def test_every_requirement_of_the_project_is_of_the_form_that_is_compared() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+(\[[a-z]+\])?>=[0-9.]+", line) for line in wanted), wanted
    check = machine.packages()
    assert (check.status, check.found) == ("ok", f"all {len(wanted)} as pyproject.toml asks for")


def test_a_folder_without_pyproject_is_told(tmp_path: Path) -> None:
    assert machine.packages(tmp_path).status == "note"


def test_another_environment_than_the_checkouts_own_is_noted(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    check = machine.environment(tmp_path / "other", tmp_path)
    assert (check.status, check.wanted) == ("note", f"{tmp_path / '.venv'} is this checkout's own")
    assert machine.environment(tmp_path / ".venv", tmp_path).status == "ok"


def test_the_processor_is_told_with_its_vector_instructions_and_the_containers_limit(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu avx2 avx512f sse\n", encoding="utf-8")
    (tmp_path / "cpu.max").write_text("50000 100000\n", encoding="utf-8")
    check = machine.processor(tmp_path, tmp_path)
    assert check.status == "ok"
    assert "AVX2, AVX-512" in check.found
    assert "0.5 of them at a time" in check.found
    (tmp_path / "cpuinfo").write_text("flags : fpu sse4_2\n", encoding="utf-8")
    assert machine.processor(tmp_path, tmp_path).found.endswith("no AVX2")
    for nonsense in ("max 100000\n", "five 0\n", "1 0\n", "\x00"):
        (tmp_path / "cpu.max").write_text(nonsense, encoding="utf-8")
        assert "limit" not in machine.processor(tmp_path, tmp_path).found
    assert machine.processor(tmp_path / "none", tmp_path).status == "note"


def test_a_browser_is_wanted_for_tests_only() -> None:
    check = machine.browser(lambda name: "/usr/bin/chrome" if name == "google-chrome" else None)
    assert (check.status, check.found) == ("ok", "/usr/bin/chrome")
    missing = machine.browser(lambda _: None)
    assert (missing.status, missing.wanted) == (
        "note",
        "only `make test` needs one: sudo apt-get install chromium",
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "raise ImportError('libcudart.so.12: cannot open shared object file')",
            "ImportError: libcudart.so.12",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ends the process (SIGILL)"),
        ("raise SystemExit(0)", "it says nothing"),
        ("print('{\"version\": 7}'); raise SystemExit(0)", "it says nothing"),
        ("print('[]'); raise SystemExit(3)", "it says nothing"),
    ],
)
def test_a_pytorch_that_cannot_be_imported_is_told(
    content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(content + "\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = look_at_torch(60)
    check = torch_check(found)
    assert check.status == "problem"
    assert words in check.found
    assert check.next == "./install.sh"


def test_a_pytorch_that_hangs_is_given_up_and_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(600)\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = torch_check(look_at_torch(0.5))
    assert check.status == "note"
    assert "did not end within" in check.found


def test_devices_are_told_with_their_memory_and_one_that_is_not_here_is_a_problem() -> None:
    gpu = Torch("2.13.0", "CUDA 12.8", (Device("cuda:0", "H200", 40_000_000_000, 141_000_000_000),))
    check = torch_check(gpu, "cuda:0")
    assert check.found == "2.13.0 (CUDA 12.8); cuda:0: H200, 40 GB free of 141 GB"
    assert torch_check(gpu, "cuda").status == "ok"
    assert torch_check(gpu, "cuda:1").status == "problem"
    assert torch_check(Torch("2.13.0", "CPU only"), "mps").next == "neuroscope serve --device auto"


def test_a_gpu_that_the_build_cannot_use_is_noted() -> None:
    check = torch_check(Torch("2.13.0+cpu", "CPU only"), has_gpu=True)
    assert check.status == "note"
    assert "CUDA build" in check.wanted
    assert "driver" in torch_check(Torch("2.13.0", "CUDA 12.8"), has_gpu=True).wanted
    assert torch_check(Torch("2.13.0+cpu", "CPU only"), has_gpu=False).status == "ok"


def test_the_real_pytorch_is_looked_at() -> None:
    import torch

    found = look_at_torch(120)
    assert (found.failure, found.version) == (None, torch.__version__)


def test_the_doctor_is_imported_without_any_package_but_the_standard_library() -> None:
    code = "import neuroscope.doctor, neuroscope.doctor.lines, sys;"
    code += "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {word.strip("'[] ") for word in done.stdout.strip().split(", ")}
    assert loaded - set(sys.stdlib_module_names) - {"__main__", "neuroscope"} == set()
