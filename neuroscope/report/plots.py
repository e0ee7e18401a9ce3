"""The six plots of the report. Each says in words what it shows; one whose numbers are missing says why."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from neuroscope.report import drawing
from neuroscope.report.drawing import BLUE, ORANGE, draw_cells
from neuroscope.report.drift import FACTOR, Drift, Pair
from neuroscope.report.numbers import (
    ALWAYS_ON,
    SCORE_BINS,
    ActiveFeatures,
    Coverage,
    Firing,
    Missing,
    Scores,
    Strength,
)
from neuroscope.report.record import Report
from neuroscope.report.svg import INK, Plot, plain, render
from neuroscope.stats import MIN_FIRINGS

SIZE = (4.8, 3.3)
"""Inches; 346 points wide, so that letters are still read on a phone."""


def draw_all(report: Report) -> list[Plot]:
    """In the order of the page."""
    return [
        firing_rates(report.firing),
        active_features(report.active_features, report.published_l0),
        activations(report.strength),
        scores(report.scores, report.min_score),
        coverage(report.coverage),
        drift(report.drift),
    ]


def firing_rates(found: Firing | Missing) -> Plot:
    name, title = "firing-rates", "How often features fire"
    if isinstance(found, Missing):
        return _missing(name, title, found)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        left = found.edges[0] - 1.0
        bars = axes.bar(found.edges[:-1], found.counts, np.diff(found.edges), align="edge", color=BLUE)
        drawing.number(bars, "bin")
        (dead,) = axes.bar([left], [found.dead], 0.6, align="edge", color=ORANGE)
        dead.set_gid("dead")
        axes.axvspan(
            found.edges[0], max(found.rare_below, found.edges[0]), color=INK, alpha=0.08, lw=0, zorder=0
        )
        axes.axvspan(np.log10(ALWAYS_ON), 0.0, color=ORANGE, alpha=0.25, lw=0, zorder=0)
        axes.set_xlim(left - 0.2, 0.1)
        decades = np.arange(np.ceil(found.edges[0]), 1)
        axes.set_xticks([left + 0.3, *decades], ["never", *(drawing.power(int(at)) for at in decades)])
        axes.set(xlabel="firing rate (log10 density)", ylabel="features")
        drawing.counts(axes.yaxis)
        axes.set_title(
            f"dead {found.dead:,}, under {MIN_FIRINGS} firings {found.rare:,}, always on {found.always_on:,}"
        )

    description = (
        f"Histogram of the firing rates of {found.features:,} features over {found.tokens:,} tokens. "
        f"{found.dead:,} never fired, {found.rare:,} fired fewer than {MIN_FIRINGS} times (grey), {found.always_on:,} "
        f"fire on more than {ALWAYS_ON:.0%} of the tokens (orange, right)."
    )
    return render(name, title, description, SIZE, draw)


def active_features(found: tuple[ActiveFeatures, ...] | Missing, published: float | None) -> Plot:
    name, title = "active-features", "Features active on a token (L0)"
    if isinstance(found, Missing):
        return _missing(name, title, found)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        handles = []
        for place, of in enumerate(found):
            edges = np.arange(len(of.shares) + 1) * of.width
            step = axes.stairs(100 * of.shares / of.width, edges, **drawing.line_style(place))
            step.set_gid(f"stratum_{place}")
            handles.append(
                Line2D([], [], **drawing.line_style(place), label=f"{plain(of.stratum)}, mean {of.mean:.1f}")
            )
        if published is not None:
            axes.axvline(published, color=INK, ls=":", lw=1).set_gid("published")
            handles.append(Line2D([], [], color=INK, ls=":", label=f"published mean, {published:g}"))
        axes.set(xlabel="active features (L0)", ylabel="% of tokens")
        axes.set_ylim(bottom=0)
        drawing.legend(axes, handles)

    each = "; ".join(f"{of.stratum}: mean {of.mean:.1f} over {of.tokens:,} tokens" for of in found)
    description = f"Histogram of the number of active features on a token, by kind of text. {each}."
    return render(name, title, description, SIZE, draw)


def activations(found: Strength | Missing) -> Plot:
    name, title = "activations", "Activation against firing rate"
    if isinstance(found, Missing):
        return _missing(name, title, found)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        draw_cells(axes, found.cells, "cells")
        axes.set(xlabel="firing rate", ylabel="mean activation while firing")
        drawing.powers(axes.xaxis)
        drawing.powers(axes.yaxis)

    description = (
        f"Mean activation while firing against firing rate of {found.features:,} features, darker where more of them "
        f"are. {_correlation(found.correlation)}"
    )
    return render(name, title, description, SIZE, draw)


def scores(found: tuple[Scores, ...] | Missing, min_score: float) -> Plot:
    name, title = "label-scores", "Scores of labels"
    if isinstance(found, Missing):
        return _missing(name, title, found)

    def draw(figure: Figure) -> None:
        edges = np.linspace(0, 1, SCORE_BINS + 1)
        rows = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
        for place, (axes, of) in enumerate(zip(rows, found, strict=True)):
            bars = axes.bar(edges[:-1], of.counts, 1 / SCORE_BINS, align="edge", color=BLUE)
            drawing.number(bars, f"score_{place}")
            axes.axvline(0.5, color=INK, ls=":", lw=1)
            axes.axvline(min_score, color=ORANGE, ls="--", lw=1)
            if of.mean is not None:
                axes.axvline(of.mean, color=INK, lw=1.5)
            axes.set_title(_score_title(of), loc="left", fontsize=9)
            axes.set_xlim(0, 1)
            drawing.counts(axes.yaxis)
        rows[-1].set_xlabel("balanced accuracy (dotted: chance, dashed: good from here, line: mean)")
        rows[-1].xaxis.label.set_fontsize(8)

    each = "; ".join(_score_title(of) for of in found)
    description = f"Histograms of balanced accuracy, by source of the label and method of scoring. {each}."
    return render(name, title, description, (SIZE[0], max(SIZE[1], 0.5 + 1.2 * len(found))), draw)


def _score_title(of: Scores) -> str:
    mean = "no score" if of.mean is None else f"mean {of.mean:.2f}"
    failed = f", {of.failed:,} without a score" if of.failed else ""
    return plain(f"{of.source}, {of.method}: {mean}, {of.scored:,} labels{failed}")


def coverage(found: Coverage | Missing) -> Plot:
    name, title = "coverage", "Features seen as the sweep went on"
    if isinstance(found, Missing):
        return _missing(name, title, found)
    measured, seen = found.points[-1]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        x, y = zip(*found.points, strict=True)
        (line,) = axes.plot(x, y, "o-", ms=2.5, lw=1.2, color=BLUE)
        line.set_gid("curve")
        axes.axhline(found.features, color=ORANGE, ls="--", lw=1, label=f"all {found.features:,}")
        axes.set(xscale="log", xlabel="tokens measured", ylabel="features seen at least once")
        axes.set_ylim(0, 1.08 * found.features)
        drawing.tokens(axes.xaxis)
        drawing.counts(axes.yaxis)
        axes.set_title(f"{seen:,} of {found.features:,} after {measured:,} tokens")

    description = (
        f"Features that fired at least once against tokens measured: {seen:,} of {found.features:,} after {measured:,} "
        f"tokens, {found.late:,} of them in the last tenth."
    )
    return render(name, title, description, SIZE, draw)


def drift(found: Drift | Missing) -> Plot:
    name, title = "drift", "Firing rates in different texts"
    if isinstance(found, Missing):
        return _missing(name, title, found)
    shown = found.shown
    rows = -(-len(shown) // 2)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(rows, min(2, len(shown)), squeeze=False).ravel()
        for place, axes in enumerate(panels):
            if place >= len(shown):
                axes.set_axis_off()
                continue
            _drift_panel(axes, shown[place], place)

    each = "; ".join(f"{pair.b}: {_differ(pair)}" for pair in shown)
    description = (
        f"Firing rates in {found.reference} against those in other texts, darker where more features are; on the "
        f"line they are equal. {each}."
    )
    return render(name, title, description, (SIZE[0], max(SIZE[1], 2.6 * rows)), draw)


def _drift_panel(axes: Axes, pair: Pair, place: int) -> None:
    draw_cells(axes, pair.cells, f"pair_{place}")
    low = min([axes.get_xlim()[0], axes.get_ylim()[0]])
    axes.set_xlim(low, 0)
    axes.set_ylim(low, 0)
    axes.axline((low, low), (0, 0), color=INK, lw=1)
    for offset in (np.log10(FACTOR), -np.log10(FACTOR)):
        axes.axline((low, low + offset), slope=1, color=INK, lw=0.7, ls=":")
    axes.set(xlabel=f"rate, {plain(pair.a)}", ylabel=f"rate, {plain(pair.b)}", aspect="equal")
    share = "none compared" if pair.share is None else f"{pair.share:.0%} differ over {FACTOR:g}x"
    axes.set_title(share, fontsize=9)
    drawing.powers(axes.xaxis, 3)
    drawing.powers(axes.yaxis, 3)


def _differ(pair: Pair) -> str:
    if not pair.compared:
        return "no feature fired often enough to be compared"
    return (
        f"{pair.differ:,} of {pair.compared:,} features differ more than {FACTOR:g} times. "
        f"{_correlation(pair.correlation)}"
    )


def _correlation(value: float | None) -> str:
    return "Rank correlation not defined." if value is None else f"Rank correlation {value:.2f}."


def _missing(name: str, title: str, missing: Missing) -> Plot:
    """The reason in the plot's place."""

    def draw(figure: Figure) -> None:
        words = plain(missing.reason)
        figure.text(0.5, 0.5, words, ha="center", va="center", wrap=True).set_gid("missing")

    return render(name, title, f"Not drawn. {missing.reason}", SIZE, draw)
