"""Makes the environments of the tools that the sweep is compared with: `python -m bench.rivals.install`.

Each is `bench/rivals/.venv-NAME`, or below NEUROSCOPE_RIVALS, from the pinned versions of `NAME.txt`: some 1.5 GB
together. A package that declares much more than what is compared here needs (Delphi: vllm and with it CUDA) stands in
`NAME.no-deps.txt` and is installed without its dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("delphi", "saelens")


def folder_of(name: str) -> Path:
    return Path(os.environ.get("NEUROSCOPE_RIVALS", HERE)) / f".venv-{name}"


def python_of(name: str) -> str:
    """The interpreter of a tool's environment. Ends the program where it is not installed."""
    folder = folder_of(name)
    if not (folder / "installed").exists():
        raise SystemExit(f"{folder} is not there. Install it with: python -m bench.rivals.install {name}")
    return str(folder / "bin/python")


def install(name: str) -> None:
    folder = folder_of(name)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-r", str(HERE / f"{name}.txt")], check=True)
    alone = HERE / f"{name}.no-deps.txt"
    if alone.exists():
        subprocess.run([*pip, "--no-deps", "-r", str(alone)], check=True)
    (folder / "installed").touch()


def main() -> None:
    names = sys.argv[1:] or NAMES
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"{name!r} is not known; choose of {', '.join(NAMES)}.")
    for name in names:
        install(name)


if __name__ == "__main__":
    main()
