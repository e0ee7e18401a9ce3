"""The load promises, measured: `make soak`, or `python -m bench.soak --only sse,chats --seconds 5`.

Real server processes on loopback, a scripted engine, the load beside them on the same cores. Ends by itself within
ten minutes, leaves no process, and with status 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/server"))  # the scripted engine, and how its server is run

from bench.machine import machine  # noqa: E402
from bench.soak import chats, endings, mixture, report, streams  # noqa: E402
from bench.soak.limits import raise_open_files  # noqa: E402
from bench.soak.quoting import quote  # noqa: E402
from bench.soak.report import Figure, Part  # noqa: E402

LONGEST_S = 600
PACKAGES = ("flask", "gevent", "greenlet", "gunicorn")
REAL_CROWDS = (0, 1, 100, 1000)
REAL_NEEDS_S = 150

SIGNS = (signal.SIGALRM, signal.SIGTERM, signal.SIGINT)
stops: list[int] = []
"""The signal that ended the run early, if one did."""

TITLES = {
    "sse": "{clients:,} subscribers, {stuck} of whom never read, at 10 tokens/s",
    "settings": "The same with ten different settings",
    "slow": "The model's speed beside slow and dead clients",
    "chats": "{chats} chat requests at once, with a queue of 32",
    "mix": "{requests:,} requests of every kind",
    "ends": "{ends} SIGTERMs under load",
    "real": "The embedded model's speed and its subscribers",
}


class Stopped(BaseException):
    """No part may take this for a failure of its own."""


def main() -> int:
    arguments = read_arguments()
    for sign in SIGNS:
        signal.signal(sign, give_up)
    signal.alarm(LONGEST_S)
    started = time.monotonic()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])  # and of all it starts
    raise_open_files(arguments.clients)
    about = machine(PACKAGES)
    parts: list[Part] = []
    for name in arguments.only:
        part = run(name, arguments, LONGEST_S - (time.monotonic() - started))
        parts.append(part)
        if not arguments.json:
            print("\n".join(report.lines(part)), flush=True)
        if stops:
            break
    signal.alarm(0)
    left = psutil.Process().children(recursive=True)
    options = {k: v for k, v in vars(arguments).items() if k not in ("only", "json", "out")}
    found = report.whole(parts, about, options)
    if arguments.out:
        report.save(found, arguments.out)
        quote(found, ROOT / "docs/server.md")
    if arguments.json:
        print(json.dumps(found, indent=2))
    return say_end(report.broken(parts), len(left)) or int(bool(stops))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(TITLES),
        help=f"some of {','.join(TITLES)}",
    )
    parser.add_argument("--seconds", type=float, default=30, help="of each run of the stream (default 30)")
    parser.add_argument("--clients", type=int, default=1000, help="subscribers (default 1000)")
    parser.add_argument("--stuck", type=int, default=50, help="of those that never read (default 50)")
    parser.add_argument("--chats", type=int, default=200, help="requests at once (default 200)")
    parser.add_argument("--requests", type=int, default=10_000, help="of the mix (default 10,000)")
    parser.add_argument("--ends", type=int, default=20, help="SIGTERMs (default 20)")
    parser.add_argument("--streams", type=int, default=200, help="open at each SIGTERM (default 200)")
    parser.add_argument("--cores", type=int, default=2, help="for server and load together (default 2)")
    parser.add_argument("--json", action="store_true", help="the report instead of the lines")
    parser.add_argument("--out", type=Path, help="file for the report; docs/server.md then quotes it")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.only if name not in TITLES]:
        parser.error(f"--only has {', '.join(unknown)}; there are {', '.join(TITLES)}")
    return arguments


def run(name: str, arguments: argparse.Namespace, seconds_left: float) -> Part:
    title = TITLES[name].format_map(vars(arguments))
    if name == "real" and (reason := why_not_real(seconds_left)):
        return Part(name, title, (), 0, reason)
    started, figures, reason = time.monotonic(), [], None
    try:
        figures = measure(name, arguments)
    except Stopped as stopped:
        reason = str(stopped)
    return Part(name, title, tuple(figures), round(time.monotonic() - started, 1), reason)


def measure(name: str, arguments: argparse.Namespace) -> list[Figure]:
    seconds = arguments.seconds
    crowd = {"clients": arguments.clients, "stuck": arguments.stuck, "seconds": seconds}
    jobs: dict[str, Callable[[], list[Figure]]] = {
        "sse": lambda: streams.run(**crowd),
        "settings": lambda: streams.run(**crowd, queries=streams.SETTINGS),
        "slow": lambda: streams.slowing(
            rounds=max(2, round(seconds / 2)),
            seconds=0.7,
            stuck=arguments.stuck,
            slow=arguments.stuck,
            gone=arguments.stuck,
        ),
        "chats": lambda: chats.run(count=arguments.chats, rounds=max(2, round(seconds / 4))),
        "mix": lambda: mixture.run(requests=arguments.requests, warm_up=max(200, arguments.requests // 5)),
        "ends": lambda: endings.run(times=arguments.ends, streams=arguments.streams),
        "real": lambda: streams.real(crowds=REAL_CROWDS, seconds=seconds / 3),
    }
    return jobs[name]()


def why_not_real(seconds_left: float) -> str | None:
    if not streams.is_cached():
        return "the model is not on this machine; `neuroscope models pull smollm2-135m` brings it"
    if seconds_left < REAL_NEEDS_S:
        return f"only {seconds_left:.0f} s of the {LONGEST_S} were left"
    return None


def say_end(broken: list[str], left: int) -> int:
    for name in broken:
        print(f"Broken: {name}", file=sys.stderr)
    if left:
        print(f"{left} processes were left.", file=sys.stderr)
    return 1 if broken or left else 0


def give_up(number: int, _frame: FrameType | None) -> NoReturn:
    """Once: through every `with` on the way, so that what was started is stopped."""
    for sign in SIGNS:
        signal.signal(sign, signal.SIG_IGN)
    stops.append(number)
    raise Stopped(f"stopped after {LONGEST_S} s" if number == signal.SIGALRM else "stopped by a signal")


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
