"""Figures beside their promises, on the terminal and as `soak.json`."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One thing that was measured. `kept` is None for what is only reported."""

    name: str
    what: str
    promised: str | None
    measured: float | int | None
    unit: str
    kept: bool | None = None


def at_most(name: str, what: str, limit: float, measured: float | None, unit: str) -> Figure:
    return Figure(
        name,
        what,
        f"at most {limit:,g} {unit}".strip(),
        measured,
        unit,
        measured is not None and measured <= limit,
    )


def at_least(name: str, what: str, limit: float, measured: float, unit: str) -> Figure:
    return Figure(name, what, f"at least {limit:,g} {unit}".strip(), measured, unit, measured >= limit)


def exactly(name: str, what: str, wanted: int, measured: int, unit: str) -> Figure:
    return Figure(name, what, f"{wanted:,} {unit}".strip(), measured, unit, measured == wanted)


def reported(name: str, what: str, measured: float | None, unit: str) -> Figure:
    return Figure(name, what, None, measured, unit)


@dataclass(frozen=True)
class Part:
    """One of the runs: its figures, or why it was not run."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    seconds: float
    not_run: str | None = None


def whole(parts: list[Part], about: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": about,
        "options": options,
        "kept": not broken(parts),
        "seconds": round(sum(part.seconds for part in parts)),
        "parts": [asdict(part) for part in parts],
    }


def save(report: dict[str, Any], path: Path) -> None:
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(json.dumps(report, indent=2) + "\n")
    unfinished.replace(path)


def lines(part: Part) -> list[str]:
    """One part for the terminal."""
    if part.not_run is not None:
        return [f"{part.title}: not run: {part.not_run}"]
    found = [f"{part.title} ({part.seconds:.0f} s)"]
    for figure in part.figures:
        mark = {True: "kept", False: "BROKEN", None: ""}[figure.kept]
        measured = "nothing" if figure.measured is None else f"{figure.measured:,}"
        found.append(
            f"  {mark:7} {figure.what}: {f'{measured} {figure.unit}'.strip()}"
            + (f" (promised {figure.promised})" if figure.promised else "")
        )
    return found


def broken(parts: list[Part]) -> list[str]:
    """Promises that were not kept, or not tried. Nothing is promised of the real model."""
    untried = [f"{part.name}: {part.not_run}" for part in parts if part.not_run and part.name != "real"]
    return [f"{part.name}: {f.what}" for part in parts for f in part.figures if f.kept is False] + untried
