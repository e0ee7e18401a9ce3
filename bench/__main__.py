"""Every figure of speed and memory: `make bench`, or `python -m bench --only prefix --rounds 3`.

Each group of figures runs in a process of its own. What was run takes the place of its older figures in
`bench/results.json` and in the tables of `bench/README.md` and README; what was not run keeps them, with their date.
`--trial` writes nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench import table  # noqa: E402
from bench.arguments import names_of  # noqa: E402
from bench.figures import NAMES  # noqa: E402
from bench.machine import machine  # noqa: E402

PACKAGES = (
    "torch",
    "transformers",
    "llama-cpp-python",
    "numpy",
    "polars",
    "duckdb",
    "flask",
    "gunicorn",
    "gevent",
)


def main() -> int:
    arguments = read_arguments()
    groups, failed = {}, []
    for name in arguments.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        about = machine(PACKAGES)
        run = subprocess.run(
            [sys.executable, "-m", "bench.run", name, str(arguments.rounds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if run.returncode:
            failed.append(name)
            continue
        groups[name] = table.group(json.loads(run.stdout.splitlines()[-1]), about, arguments.rounds)
        print("\n".join(table.lines(groups[name])), flush=True)
        if not arguments.trial:
            table.save(groups, ROOT / "bench/results.json", ROOT / "bench/README.md", ROOT / "README.md")
    for name in failed:
        print(f"{name} failed: its error is above.", file=sys.stderr)
    return 1 if failed or any(table.broken(group) for group in groups.values()) else 0


def read_arguments() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=names_of(NAMES), default=NAMES, help=f"comma-separated: {', '.join(NAMES)}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side (default: 5)")
    parser.add_argument("--trial", action="store_true", help="only print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
