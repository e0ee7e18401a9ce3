"""The figures as `results.json`, on the terminal, and as the table in `bench/README.md`."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.figures import NAMES

HEAD = "| what | measured against | promised | measured | lowest, highest |\n|---|---|---|---|---|\n"

SHORT_HEAD = "| how fast | beside | promised | measured |\n|---|---|---|---|\n"
SHORT = (
    "instrument-gemma-2-2b-shape",
    "decode-float32",
    "decode-bfloat16",
    "decode-int4",
    "llamacpp-smollm2",
    "llamacpp-smollm2-same-weights",
    "llamacpp-llama-1.1b-shape",
    "llamacpp-llama-1.1b-shape-same-weights",
    "llamacpp-gemma-2-2b-shape",
    "llamacpp-gemma-2-2b-shape-same-weights",
    "sweep-vs-bare-forward",
    "sweep-vs-delphi",
    "sweep-vs-saelens",
    "first-token-tenth-turn",
    "start-to-ready",
    "subscribers-1000",
    "feature-page",
)
"""Figures of the project's README."""

Group = dict[str, Any]


def group(figures: Sequence[Mapping[str, Any]], about: Mapping[str, Any], rounds: int) -> Group:
    """What one module gave, with what it depends on."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": today, "rounds": rounds, "machine": dict(about), "figures": list(figures)}


def save(groups: Mapping[str, Group], results: Path, readme: Path, front: Path) -> None:
    """Put `groups` in the place of their older selves, in the record, its table and the short one of `front`."""
    known = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    known |= groups
    known = {name: known[name] for name in NAMES if name in known}
    unfinished = results.with_name(f"{results.name}.tmp")
    unfinished.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(results)
    quote(HEAD, markdown(known), readme)
    quote(SHORT_HEAD, short(known), front)


def quote(head: str, table: str, readme: Path) -> None:
    """Put `table` in the place of the one that begins with `head`."""
    text = readme.read_text(encoding="utf-8")
    old = re.search(re.escape(head) + r"(\|.*\n)*", text)
    if old is None:
        raise SystemExit(f"{readme.name} has no table that begins with {head.splitlines()[0]!r}.")
    readme.write_text(text[: old.start()] + table + text[old.end() :], encoding="utf-8")


def short(known: Mapping[str, Group]) -> str:
    figures = {one["name"]: one for group in known.values() for one in group["figures"]}
    rows = [
        f"| {one['what']} | {one['against']} | {promised(one)} | "
        f"{number(one['measured']['median'])} {one['unit']}{reached(one)} |\n"
        for name in SHORT
        if (one := figures.get(name))
    ]
    return SHORT_HEAD + "".join(rows)


def markdown(known: Mapping[str, Group]) -> str:
    """One row for each figure, in the order of `NAMES`."""
    figures = [figure for name in NAMES if name in known for figure in known[name]["figures"]]
    return HEAD + "".join(row(figure) for figure in figures)


def row(figure: Mapping[str, Any]) -> str:
    measured, unit = figure["measured"], figure["unit"]
    spread = f"{number(measured['low'])}, {number(measured['high'])}"
    return (
        f"| {figure['what']} | {figure['against']} | {promised(figure)} | "
        f"**{number(measured['median'])}** {unit}{reached(figure)} | {spread} |\n"
    )


def reached(figure: Mapping[str, Any]) -> str:
    return " (not reached)" if figure["kept"] is False else ""


def promised(figure: Mapping[str, Any]) -> str:
    if figure["at_least"] is not None:
        return f"at least {figure['at_least']:,.4g}"
    return "-" if figure["at_most"] is None else f"at most {figure['at_most']:,.4g}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def lines(found: Group) -> list[str]:
    """A group for the terminal."""
    told = []
    for figure in found["figures"]:
        mark = {True: "kept", False: "BROKEN", None: ""}[figure["kept"]]
        measured = figure["measured"]
        told.append(
            f"  {mark:7} {figure['name']}: {number(measured['median'])} {figure['unit']} "
            f"({number(measured['low'])} to {number(measured['high'])}; promised {promised(figure)})"
        )
        told += [f"          {key}: {value}" for key, value in figure["details"].items()]
    return told


def broken(found: Group) -> list[str]:
    return [figure["name"] for figure in found["figures"] if figure["kept"] is False]
