"""One group of figures in this process, as JSON on the last line: what `python -m bench` starts."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[1] / "tests/server")
)  # the scripted engine, and how its server is run


def main() -> None:
    name, rounds = sys.argv[1:]
    figures = importlib.import_module(f"bench.figures.{name}").measure(int(rounds))
    print(json.dumps([{**asdict(figure), "kept": figure.kept} for figure in figures]))


if __name__ == "__main__":
    main()
