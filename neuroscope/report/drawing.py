"""What the plots are drawn with: colours, cells, and axes of counts and of powers of ten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from neuroscope.report.numbers import Cells, Ints

COLOURS = ("#3a8fd0", "#e0782f", "#1b9e77", "#b07cc6", "#a89410", "#d0527a")
"""Told apart by people who see fewer colours, on white and on black; dashes tell them apart too."""
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
BLUE, ORANGE = COLOURS[:2]


def draw_cells(axes: Axes, cells: Cells, gid: str) -> None:
    """Squares of one colour, more of it where more features are: it reads on white and on black."""
    width, height = cells.steps
    x, y = cells.x * width, cells.y * height
    corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
    squares = np.stack([np.column_stack(corner) for corner in corners], axis=1)  # [cells, 4, 2]
    most = np.log1p(cells.counts.max(initial=1))
    colours = [(*_rgb(BLUE), 0.2 + 0.8 * shade) for shade in np.log1p(cells.counts) / most]
    axes.add_collection(PolyCollection(list(squares), facecolors=colours, linewidths=0, gid=gid))
    axes.set_xlim(_around(cells.x, width))
    axes.set_ylim(_around(cells.y, height))


def _around(cells: Ints, step: float) -> tuple[float, float]:
    """Limits of an axis of log10 values; whole decades where there would be hardly a tick otherwise."""
    if not len(cells):
        return -1.0, 0.0
    low, high = float(cells.min()) * step, float(cells.max() + 1) * step
    if high - low < 2:
        return float(np.floor(low)), float(np.ceil(high))
    return low - step, high + step


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def number(artists: Iterable[Artist], gid: str) -> None:
    """Gives each the id `gid_0`, `gid_1` and so on."""
    for place, artist in enumerate(artists):
        artist.set_gid(f"{gid}_{place}")


def line_style(place: int) -> dict[str, Any]:
    """How the line of the n-th series looks."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place % len(DASHES)]}


def legend(axes: Axes, handles: list[Line2D]) -> None:
    labels = [str(handle.get_label()) for handle in handles]
    # A label that begins with an underscore would be left out: a space of no width comes before.
    shown = [f"\u200b{label}" if label.startswith("_") else label for label in labels]
    axes.legend(handles, shown, loc="best")


def counts(axis: Axis, most: int = 8) -> None:
    """Ticks at whole numbers."""
    axis.set_major_locator(MaxNLocator(most, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def powers(axis: Axis, most: int = 6) -> None:
    """Ticks of an axis of log10 values, at whole decades."""
    axis.set_major_locator(MaxNLocator(most, integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(round(value))))


def tokens(axis: Axis) -> None:
    """Ticks of a logarithmic axis of tokens."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def power(exponent: int) -> str:
    """0.001 or 1e-05."""
    return f"{10.0**exponent:g}"


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
