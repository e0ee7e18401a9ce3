"""A measured curve beside the one that is expected, as JSON and as an SVG chart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator


@dataclass(frozen=True)
class Series:
    """One quantity over the sizes of a `Curve`."""

    what: str
    unit: str
    measured: Sequence[float]
    expected: Sequence[float]
    why: str
    """What the expected line says: `as many times longer as the corpus`."""


@dataclass(frozen=True)
class Curve:
    """How some quantities grow with one size."""

    name: str
    title: str
    size: str
    """What grows, with its unit."""
    sizes: Sequence[int]
    series: Sequence[Series]


def save(curve: Curve, machine: Mapping[str, Any], folder: Path) -> None:
    """`name.json` and `name.svg` in `folder`."""
    record = {**asdict(curve), "machine": dict(machine)}
    (folder / f"{curve.name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    draw(curve, folder / f"{curve.name}.svg")


def draw(curve: Curve, path: Path) -> None:
    """One panel for each series, both axes logarithmic, from zero knowledge of the machine: the same data give the
    same bytes."""
    with matplotlib.rc_context(
        {"svg.hashsalt": curve.name, "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        figure, panels = pyplot.subplots(
            1, len(curve.series), figsize=(4.6 * len(curve.series), 3.6), squeeze=False, layout="constrained"
        )
        figure.suptitle(curve.title)
        for panel, series in zip(panels[0], curve.series, strict=True):
            draw_series(panel, curve, series)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def draw_series(panel: Axes, curve: Curve, series: Series) -> None:
    panel.plot(curve.sizes, series.expected, "--", color="0.5", label=f"expected: {series.why}")
    panel.plot(curve.sizes, series.measured, "o-", color="tab:blue", label="measured")
    panel.set(xscale="log", yscale="log", xlabel=curve.size, ylabel=f"{series.what}, {series.unit}")
    values = [*series.measured, *series.expected]
    panel.set_ylim(min(values) / 2, max(values) * 2)
    panel.set_xticks(curve.sizes)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
        )
    panel.xaxis.set_minor_locator(NullLocator())
    for value, size in zip(series.measured, curve.sizes, strict=True):
        panel.annotate(
            f"{value:,.3g}", (size, value), textcoords="offset points", xytext=(0, 7), ha="center", size=8
        )
    panel.legend(frameon=False, fontsize=8, loc="best")
    panel.spines[["top", "right"]].set_visible(False)
