"""The machine and its Python, by the standard library alone: these lines come where nothing else is installed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from neuroscope.doctor.check import Check

CHECKOUT = Path(__file__).absolute().parents[2]
OLDEST = (3, 11)
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
MAC_BROWSERS = ("/Applications/Google Chrome.app", "/Applications/Chromium.app")
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9][0-9A-Za-z.]*))?")


def python_version(found: tuple[int, ...] | None = None) -> Check:
    """Whether this Python is new enough."""
    found = sys.version_info[:3] if found is None else found
    shown = ".".join(map(str, found))
    if found[:2] < OLDEST:
        remedy = "make demo PYTHON=/path/to/python3.12"
        return Check("Python", "problem", shown, "3.11 or newer", remedy)
    return Check("Python", "ok", f"{shown}, {sys.executable}")


def operating_system(
    system: str | None = None, release: str | None = None, machine: str | None = None
) -> Check:
    """Which systems the project's tests run on, and whether this is one of them."""
    system = system or platform.system()
    release = release or platform.release()
    machine = machine or platform.machine()
    found = f"{system} {release}, {machine}"
    if system == "Windows":
        wanted = "Linux; Windows itself does not work, Windows with WSL may"
        return Check("system", "problem", found, wanted, "wsl --install")
    if system == "Linux" and "microsoft" in release.lower():
        return Check("system", "note", f"{found}: Windows (WSL), untested", "Linux is what is tested")
    if system == "Darwin":
        return Check("system", "note", f"macOS {release}, {machine}: untested", "Linux is what is tested")
    if system != "Linux":
        return Check("system", "note", f"{found}: untested", "Linux is what is tested")
    if machine.lower() not in ("x86_64", "amd64"):
        return Check("system", "note", f"{found}: untested", "Linux on x86-64 is what is tested")
    return Check("system", "ok", f"{found}: tested")


def environment(prefix: Path | None = None, checkout: Path = CHECKOUT) -> Check:
    """Whether the Python that runs is the checkout's own."""
    prefix = Path(prefix or sys.prefix)
    own = checkout / ".venv"
    try:
        installed = version("neuroscope-sae")
    except PackageNotFoundError:
        wanted = f"Python of {own}" if own.exists() else "an installation"
        return Check(
            "environment", "problem", f"{prefix}: Neuroscope is not installed", wanted, "./install.sh"
        )
    if own.is_dir() and prefix.resolve() != own.resolve():
        return Check(
            "environment", "note", f"{prefix}, Neuroscope {installed}", f"{own} is this checkout's own"
        )
    return Check("environment", "ok", f"{prefix}, Neuroscope {installed}")


def packages(
    checkout: Path = CHECKOUT,
    installed: Callable[[str], str] | None = None,
    named: tuple[str, ...] | None = None,
) -> Check:
    """The versions of what pyproject.toml asks for, without importing any of it."""
    wanted = _requirements(checkout) if named is None else list(named)
    if not wanted:
        return Check("packages", "note", f"{checkout} has no pyproject.toml to compare with")
    missing, old, count = [], [], 0
    for requirement in wanted:
        parsed = _REQUIREMENT.match(requirement)
        if parsed is None:
            continue
        name, oldest = parsed[1], parsed[2]
        try:
            found = (installed or version)(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        count += 1
        if oldest and _numbers(found) < _numbers(oldest):
            old.append(f"{name} {found} (wanted {oldest} or newer)")
    if missing or old:
        words = [*([f"missing: {', '.join(missing)}"] if missing else []), *old]
        return Check("packages", "problem", "; ".join(words), "what pyproject.toml asks for", "./install.sh")
    return Check("packages", "ok", f"all {count} as pyproject.toml asks for")


def _requirements(checkout: Path) -> list[str]:
    try:
        tree = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return list(tree["project"]["dependencies"])


def _numbers(text: str) -> tuple[int, ...]:
    """2.13.0+cpu as (2, 13): versions are compared by number, ends of zeros and builds do not count."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def processor(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Check:
    """Cores that this process may use, and the vector instructions that decoding's speed hangs on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    words = [f"{cores} cores"]
    quota = _quota(cgroup)
    if quota is not None and quota < cores:
        words.append(f"{quota:g} of them at a time by the container's limit")
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return Check("processor", "ok", ", ".join([*words, machine]))
    flags = _flags(proc)
    if flags is None:
        return Check("processor", "note", ", ".join([*words, "its instructions could not be read"]))
    has = [
        name
        for flag, name in (
            ("avx2", "AVX2"),
            ("avx512f", "AVX-512"),
            ("avx512_bf16", "AVX-512 BF16"),
            ("amx_tile", "AMX"),
        )
        if flag in flags
    ]
    if "avx2" not in flags:
        return Check(
            "processor",
            "note",
            ", ".join([*words, "no AVX2"]),
            "AVX2: without it answers are several times slower",
        )
    return Check("processor", "ok", ", ".join([*words, *has]))


def _flags(proc: Path) -> frozenset[str] | None:
    try:
        text = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^flags\s*:(.*)$", text, flags=re.MULTILINE)
    return frozenset(found[1].split()) if found else None


def _quota(cgroup: Path) -> float | None:
    try:
        quota, _, period = (cgroup / "cpu.max").read_text(encoding="utf-8").partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def browser(find: Callable[[str], str | None] = shutil.which) -> Check:
    """Whether the browser tests can run; nothing else needs one."""
    found = next((path for name in BROWSERS if (path := find(name))), None)
    found = found or next((path for path in MAC_BROWSERS if os.path.exists(path)), None)
    if found is None:
        return Check(
            "Chromium", "note", "none found", "only `make test` needs one: sudo apt-get install chromium"
        )
    return Check("Chromium", "ok", found)
