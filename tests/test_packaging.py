"""What a newcomer installs: the lists of dependencies agree, `install.sh` says what is missing."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
DEV = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
CLIENTS = [Requirement(text) for text in PROJECT["optional-dependencies"]["clients"]]
LLAMACPP = [Requirement(text) for text in PROJECT["optional-dependencies"]["llamacpp"]]
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def test_constraints_pin_every_direct_dependency() -> None:
    missing = (names(RUNTIME) | names(DEV) | names(CLIENTS) | names(LLAMACPP)) - names(CONSTRAINTS)
    assert not missing, f"constraints.txt lacks {sorted(missing)}"


def test_constraints_are_plain_versions_inside_the_open_ranges() -> None:
    direct = RUNTIME + DEV + CLIENTS + LLAMACPP
    ranges = {canonicalize_name(requirement.name): requirement.specifier for requirement in direct}
    for pinned in CONSTRAINTS:
        assert pinned.url is None
        (version,) = pinned.specifier
        assert version.operator == "==", f"{pinned}: one exact version"
        accepted = ranges.get(canonicalize_name(pinned.name))
        assert accepted is None or version.version in accepted, f"{pinned} is outside {accepted}"


def test_dependencies_are_open_ranges() -> None:
    for requirement in RUNTIME + DEV + CLIENTS + LLAMACPP:
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators <= {">=", "!="}, f"{requirement}: an upper bound belongs into constraints.txt"


def test_the_lock_of_the_javascript_clients_names_hashes_and_no_registry() -> None:
    folder = ROOT / "tests/clients/node"
    packages = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert packages[""]["dependencies"] == wanted
    for name, package in packages.items():
        assert "resolved" not in package, f"{name}: install with the .npmrc beside the lock"
        assert name == "" or package["integrity"].startswith("sha512-")


def test_what_the_package_imports_is_declared() -> None:
    providers = packages_distributions()
    imported = set()
    for path in (ROOT / "neuroscope").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    # Parts of transformers, Flask and flask-sock, which hand out their objects; _typeshed is for type checkers.
    exempt = {
        "neuroscope",
        "tokenizers",
        "safetensors",
        "werkzeug",
        "simple_websocket",
        "wsproto",
        "_typeshed",
    }
    foreign = imported - set(sys.stdlib_module_names) - exempt
    declared = names(RUNTIME) | names(LLAMACPP)
    for module in sorted(foreign):
        provided_by = {canonicalize_name(name) for name in providers.get(module, [module])}
        assert provided_by & declared, f"{module} ({provided_by}) is imported but not among the dependencies"


def test_environment_yml_installs_the_project_and_repeats_nothing() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == "neuroscope"
    *plain, pip = environment["dependencies"]
    assert plain == [f"python{PROJECT['requires-python']}", "pip"]
    assert pip == {"pip": ["--constraint constraints.txt", "--editable ."]}


def test_ci_runs_the_two_commands_and_brings_only_a_browser() -> None:
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & stat.S_IXUSR
    text = script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True)
    assert re.findall(r"^make .*", text, flags=re.MULTILINE) == ["make check", "make test"]
    assert re.findall(r"install -y .*", text) == [
        'install -y -qq --no-install-recommends "$package" >/dev/null'
    ]
    assert set(re.findall(r"echo (chromium\S*?)\b(?![-\w])", text)) == {"chromium-headless-shell", "chromium"}


def test_make_lists_its_commands() -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^make (\w+)", listed, flags=re.MULTILINE)[:3] == ["help", "demo", "test"]


def install(
    checkout: Path, *, path: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs install.sh in a bare checkout, in a path with a space; programs in `path` come first."""
    folder = checkout / "a checkout"
    folder.mkdir()
    for name in ("install.sh", "pyproject.toml", "constraints.txt", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    before = f"{path}{os.pathsep}" if path else ""
    return subprocess.run(
        ["./install.sh"],
        cwd=folder,
        env={**os.environ, "PATH": before + os.environ["PATH"], "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_an_old_python_is_named_with_what_is_needed(tmp_path: Path) -> None:
    old = program(
        tmp_path / "bin", "python3.9", 'case "$1" in --version) echo Python 3.9.1;; *) exit 1;; esac'
    )
    done = install(tmp_path, PYTHON=str(old))
    assert done.returncode == 1
    assert "is Python 3.9.1; Python 3.11 or newer is needed" in done.stderr


def test_a_full_disk_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    program(tmp_path / "bin", "df", "echo Filesystem; echo /dev/x 9 9 1048576 99% /")
    done = install(tmp_path, path=tmp_path / "bin")
    assert done.returncode == 1
    assert "1024 MB are free here and the installation needs 4 GB" in done.stderr
    assert not (tmp_path / "a checkout/.venv").exists()


def test_no_network_is_named_in_a_path_with_a_space(tmp_path: Path) -> None:
    done = install(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS="", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 1
    assert "no network, or no index that has them" in done.stderr
    assert "pip configuration" in done.stderr
    assert not (tmp_path / "a checkout/.venv/installed").exists()
