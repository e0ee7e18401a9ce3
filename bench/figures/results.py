"""The results of 16,384 features with 75 examples of 25 tokens each: how long they take to build, and a page of one.

Each build is a process of its own, over the same made-up inputs. The pages are asked for over HTTP, one after the
other on one connection, of the product's server process; the features are random ones.
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from serving import serving

from bench import made_results
from bench.figure import Figure, Spread
from bench.pages_wsgi import WIDTH

ROOT = Path(__file__).parents[2]
PAGES = 200
SEARCHES = ("/v1/features/search?q=law", "/v1/features/search?sort=max&limit=500", "/v1/features/labels")
OF = "16,384 features x 75 examples x 25 tokens"


def measure(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made_results.write_inputs(folder, made_results.fingerprint(WIDTH))
        built = [build(folder) for _ in range(rounds)]
        return [*figures_of(built), pages(folder, rounds)]


def build(folder: Path) -> dict[str, float]:
    run = subprocess.run(
        [sys.executable, "-m", "bench.made_results", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(run.stdout.splitlines()[-1]))


def figures_of(built: list[dict[str, float]]) -> list[Figure]:
    seconds, peak = (Spread.of([run[name] for run in built]) for name in ("seconds", "peak_mb"))
    file_mb = round(built[-1]["file_mb"])
    return [
        Figure(
            "results-build-seconds",
            f"results.duckdb, {OF}, built",
            "-",
            seconds,
            "s",
            at_most=15,
            details={"file_mb": file_mb},
        ),
        Figure("results-build-memory", f"results.duckdb, {OF}, memory", "-", peak, "MB", at_most=2000),
    ]


def pages(folder: Path, rounds: int) -> Figure:
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) / "results/tiny"
        results.mkdir(parents=True)
        for name in ("results.duckdb", "manifest.json"):
            shutil.copyfile(folder / name, results / name)
        with serving(Path(temporary), app="bench.pages_wsgi") as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.features_port, timeout=60)
            milliseconds(connection, "/v1/features/0")  # the vocabulary is read for the first page
            choose = random.Random(6)
            runs = [
                [milliseconds(connection, f"/v1/features/{choose.randrange(WIDTH)}") for _ in range(PAGES)]
                for _ in range(rounds)
            ]
            others = {path: [milliseconds(connection, path) for _ in range(20)] for path in SEARCHES}
            every_kind = [
                milliseconds(connection, f"/v1/features/{choose.randrange(WIDTH)}?examples=all")
                for _ in range(50)
            ]
            connection.close()
    return Figure(
        "feature-page",
        "a feature page of these results, as JSON over HTTP",
        "-",
        Spread.of([median(run) for run in runs]),
        "ms",
        at_most=20,
        details={
            "pages": PAGES,
            "p95_ms": round(median(quantiles(run, n=20)[-1] for run in runs), 1),
            "all_kinds_of_examples_ms": round(median(every_kind), 1),
            **{f"{path}_ms": round(median(taken), 1) for path, taken in others.items()},
        },
    )


def milliseconds(connection: http.client.HTTPConnection, path: str) -> float:
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    taken = 1e3 * (time.perf_counter() - began)
    if answer.status != 200 or json.loads(body).get("degraded"):
        raise SystemExit(f"{path} was answered with {answer.status}: {body[:500]!r}")
    return taken
