"""How time and memory grow with the corpus, the SAE and the subscribers: `make growth`.

Each curve is measured beside the line that its first point makes one expect, and kept as data and chart in
`bench/growth/`. `python -m bench.growth --only width --quick` measures one again, `--quick` with less of everything:
to see that it runs, not to be kept.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/server")]  # the second: how a server is run

from bench import curve  # noqa: E402
from bench.arguments import names_of  # noqa: E402
from bench.curves import NAMES  # noqa: E402
from bench.machine import machine  # noqa: E402

PACKAGES = ("torch", "transformers", "numpy", "polars", "gevent", "matplotlib")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=names_of(NAMES), default=NAMES, help=f"comma-separated: {', '.join(NAMES)}"
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "bench/growth", help="folder (default: bench/growth)"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        about = {**machine(PACKAGES), "quick": arguments.quick}
        found = importlib.import_module(f"bench.curves.{name}").measure(arguments.quick)
        curve.save(found, about, arguments.out)
        print("\n".join(lines(found)), flush=True)


def lines(found: curve.Curve) -> list[str]:
    """A curve for the terminal."""
    told = [f"  {found.size}: {', '.join(f'{size:,}' for size in found.sizes)}"]
    for series in found.series:
        for kind, values in (("measured", series.measured), ("expected", series.expected)):
            told.append(
                f"    {series.what}, {series.unit}, {kind}: {', '.join(f'{value:,.4g}' for value in values)}"
            )
    return told + [f"    {name}: {value}" for name, value in found.details.items()]


if __name__ == "__main__":
    main()
