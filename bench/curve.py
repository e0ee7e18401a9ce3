"""A measured curve beside the one that is expected, as JSON and as an SVG chart.

The expected line is never fitted: it follows from the first point and from how much of that grows with the size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

COLUMNS = 2


@dataclass(frozen=True)
class Series:
    """One quantity over the sizes of a `Curve`."""

    what: str
    unit: str
    measured: Sequence[float]
    grows: float
    """How much of the first point grows in proportion to the size; the rest is constant."""
    expected: Sequence[float]
    why: str
    """What the expected line says: `as many times longer as the corpus`."""
    at_most: float | None = None
    """What is promised, where something is."""


@dataclass(frozen=True)
class Curve:
    """How some quantities grow with one size."""

    name: str
    title: str
    size: str
    """What grows, with its unit."""
    sizes: Sequence[int]
    series: Sequence[Series]
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the series were made of, by name with the unit in it."""


def expected(first: float, grows: float, sizes: Sequence[int]) -> list[float]:
    """A line through the first point, of which `grows` is in proportion to the size and the rest is constant."""
    return [first + grows * (size / sizes[0] - 1) for size in sizes]


def series(
    what: str,
    unit: str,
    sizes: Sequence[int],
    measured: Sequence[float],
    *,
    grows: float,
    why: str,
    at_most: float | None = None,
) -> Series:
    """Measured values with their expected line."""
    return Series(what, unit, measured, grows, expected(measured[0], grows, sizes), why, at_most)


def load(path: Path) -> Curve:
    """A curve that `save` wrote."""
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["machine"]
    return Curve(**{**record, "series": [Series(**one) for one in record["series"]]})


def save(curve: Curve, machine: Mapping[str, Any], folder: Path) -> None:
    """`name.json` and `name.svg` in `folder`."""
    record = {**asdict(curve), "machine": dict(machine)}
    (folder / f"{curve.name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    draw(curve, folder / f"{curve.name}.svg")


def draw(curve: Curve, path: Path) -> None:
    """One panel for each series, both axes logarithmic. The same data give the same bytes."""
    with matplotlib.rc_context(
        {"svg.hashsalt": curve.name, "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        rows = -(-len(curve.series) // COLUMNS)
        size = (4.6 * COLUMNS, 3.6 * rows)
        figure, panels = pyplot.subplots(rows, COLUMNS, figsize=size, squeeze=False, layout="constrained")
        figure.suptitle(curve.title)
        for panel, series in zip_longest(panels.flat, curve.series):
            if series is None:
                panel.set_axis_off()
            else:
                draw_series(panel, curve, series)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def draw_series(panel: Axes, curve: Curve, series: Series) -> None:
    panel.plot(curve.sizes, series.expected, "--", color="0.5", label=f"expected: {series.why}")
    panel.plot(curve.sizes, series.measured, "o-", color="tab:blue", label="measured")
    panel.set(xscale="log", yscale="log", xlabel=curve.size, ylabel=f"{series.what}, {series.unit}")
    values = [*series.measured, *series.expected]
    if series.at_most is not None:
        values.append(series.at_most)
        panel.axhline(series.at_most, color="tab:red", linestyle=":", label="promised: at most this")
    panel.set_ylim(min(values) / 2, max(values) * 2)
    panel.set_xticks(curve.sizes)
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    for value, size in zip(series.measured, curve.sizes, strict=True):
        panel.annotate(
            number(value), (size, value), textcoords="offset points", xytext=(0, 7), ha="center", size=8
        )
    panel.legend(frameon=False, fontsize=8, loc="best")
    panel.spines[["top", "right"]].set_visible(False)


def number(value: float) -> str:
    """Three digits, and no thousands cut off."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
