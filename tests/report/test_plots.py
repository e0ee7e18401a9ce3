"""The plots hold the numbers they are about: bars, cells and points are counted in the SVG, words are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from neuroscope.report import plots
from neuroscope.report.drift import Drift
from neuroscope.report.numbers import ActiveFeatures, Firing, Missing, Scores, Strength
from neuroscope.report.record import Report
from neuroscope.report.svg import Plot, plain

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["firing-rates", "active-features", "activations", "label-scores", "coverage", "drift"]
HOSTILE = "$\\frac{1}{0}$ <script> & \x00\x1b[2J _x ]]>"


@pytest.fixture(scope="module")
def drawn(report: Report) -> dict[str, Plot]:
    return {plot.name: plot for plot in plots.draw_all(report)}


def root(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.alone)


def ids(plot: Plot, pattern: str) -> list[ElementTree.Element]:
    """The elements whose id without the plot's name fits."""
    return [
        node
        for node in root(plot).iter()
        if re.fullmatch(pattern, node.get("id", "").removeprefix(f"{plot.name}-"))
    ]


def words(plot: Plot) -> list[str]:
    return ["".join(node.itertext()) for node in root(plot).iter(f"{SVG}text")]


def heights(bars: Sequence[ElementTree.Element]) -> list[float]:
    """Of rectangles, in points."""
    found = []
    for bar in bars:
        (path,) = bar.iter(f"{SVG}path")
        y = [float(number) for number in re.findall(r"[ML] \S+ (\S+)", path.get("d", ""))]
        found.append(max(y) - min(y))
    return found


def test_there_are_six_in_the_order_of_the_page(drawn: dict[str, Plot]) -> None:
    assert list(drawn) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_plot_is_told_aloud_and_needs_nothing_from_elsewhere(name: str, drawn: dict[str, Plot]) -> None:
    plot = drawn[name]
    top = root(plot)
    assert top.get("role") == "img"
    title, description = (top.find(f"{SVG}{tag}") for tag in ("title", "desc"))
    assert title is not None
    assert description is not None
    assert (title.text, description.text) == (plot.title, plot.description)
    assert top.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    text = plot.alone.decode()
    assert " style=" not in plot.inside, "a strict policy refuses it"
    assert "<style" not in plot.inside
    assert "prefers-color-scheme:dark" in text
    assert "#010203" not in text, "ink is the text's colour"
    assert "<metadata" not in text
    assert not re.search(r"(?:href|src)=\"(?!#)", text)
    assert not re.search(r"20\d\d-\d\d-\d\d", text), "no date"


def test_ids_of_all_plots_are_different_and_references_lead_to_them(drawn: dict[str, Plot]) -> None:
    there: list[str] = []
    for plot in drawn.values():
        own = [node.get("id", "") for node in root(plot).iter() if node.get("id")]
        led = re.findall(r"(?:url\(|href=\")#([^)\"]+)", plot.inside)
        assert led
        assert set(led) <= set(own)
        there += own
    assert len(there) == len(set(there))


def test_the_same_numbers_give_the_same_bytes(report: Report, drawn: dict[str, Plot]) -> None:
    matplotlib.rcParams["font.size"] = 17  # a setting of the user's
    try:
        again = plots.draw_all(report)
    finally:
        matplotlib.rcdefaults()
    assert [plot.alone for plot in again] == [plot.alone for plot in drawn.values()]


def test_firing_rates_have_a_bar_a_bin_as_high_as_its_features(
    report: Report, drawn: dict[str, Plot]
) -> None:
    assert isinstance(report.firing, Firing)
    bars = ids(drawn["firing-rates"], r"bin_\d+")
    assert len(bars) == len(report.firing.counts)
    (dead,) = heights(ids(drawn["firing-rates"], "dead"))
    assert heights(bars) == pytest.approx([dead * count for count in report.firing.counts], abs=0.01)
    assert "dead 1, under 10 firings 0, always on 0" in words(drawn["firing-rates"])


def test_active_features_have_a_line_a_stratum_with_its_mean(drawn: dict[str, Plot]) -> None:
    assert len(ids(drawn["active-features"], r"stratum_\d+")) == 2
    assert len(ids(drawn["active-features"], "published")) == 1
    assert {"chat, mean 1.0", "code, mean 1.5", "published mean, 40.2"} <= set(
        words(drawn["active-features"])
    )


def test_activations_have_a_square_a_cell(report: Report, drawn: dict[str, Plot]) -> None:
    assert isinstance(report.strength, Strength)
    (cells,) = ids(drawn["activations"], "cells")
    squares = [node for node in cells.iter() if node.tag in (f"{SVG}path", f"{SVG}use")]
    assert len(squares) == len(report.strength.cells.counts)
    assert report.strength.cells.counts.sum() == 15


def test_scores_have_a_row_a_source_and_method(report: Report, drawn: dict[str, Plot]) -> None:
    assert isinstance(report.scores, tuple)
    bars = heights(ids(drawn["label-scores"], r"score_0_\d+"))
    assert sum(height > 0 for height in bars) == (report.scores[0].counts > 0).sum() == 8
    assert "tokens, rule: mean 0.45, 8 labels, 1 without a score" in words(drawn["label-scores"])
    several = (report.scores[0], replace(report.scores[0], method="rule_near_miss"))
    more = plots.scores(several, 0.6)
    assert len(ids(more, r"score_1_\d+")) == 20
    height = [float(root(plot).get("height", "0pt")[:-2]) for plot in (drawn["label-scores"], more)]
    assert height[0] <= height[1]


def test_coverage_has_a_point_a_chunk(drawn: dict[str, Plot]) -> None:
    (curve,) = ids(drawn["coverage"], "curve")
    assert len(list(curve.iter(f"{SVG}use"))) == 3
    assert "15 of 16 after 3,000 tokens" in words(drawn["coverage"])


def test_drift_has_a_panel_a_stratum_beside_the_reference(report: Report, drawn: dict[str, Plot]) -> None:
    assert isinstance(report.drift, Drift)
    (cells,) = ids(drawn["drift"], r"pair_\d+")
    squares = [node for node in cells.iter() if node.tag in (f"{SVG}path", f"{SVG}use")]
    assert len(squares) == len(report.drift.pairs[0].cells.counts)
    assert {"rate, chat", "rate, code", "13% differ over 2x"} <= set(words(drawn["drift"]))
    many = replace(report.drift, pairs=tuple(replace(report.drift.pairs[0], b=f"text {n}") for n in range(5)))
    assert len(ids(plots.drift(many), r"pair_\d+")) == 5


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_plot_says_why(name: str, report: Report) -> None:
    why = Missing("There is nothing, and this is why.")
    parts = ("firing", "active_features", "strength", "scores", "coverage", "drift")
    without = replace(report, **dict.fromkeys(parts, why))
    plot = next(plot for plot in plots.draw_all(without) if plot.name == name)
    assert " ".join(words(plot)) == why.reason
    assert plot.description == f"Not drawn. {why.reason}"


def test_names_from_the_database_are_letters_and_nothing_else() -> None:
    one = np.ones(1)
    active = plots.active_features(
        tuple(ActiveFeatures(name, 1, 1.0, 1, one) for name in (HOSTILE, "_x")), None
    )
    assert f"{plain(HOSTILE)}, mean 1.0" in words(active)
    assert "\u200b_x, mean 1.0" in words(active), "matplotlib leaves out labels that begin with an underscore"
    counts = np.ones(20, np.int64)
    scored = plots.scores((Scores(HOSTILE, "$x$", 1, 0, 0.5, None, None, 0.5, counts),), 0.6)
    assert plain(f"{HOSTILE}, $x$: mean 0.50, 1 labels") in words(scored)
    for plot in (active, scored):
        assert "<script" not in plot.inside
        assert not [node for node in root(plot).iter() if "script" in node.tag]


def test_characters_that_no_xml_holds_or_that_turn_the_line_are_taken_out() -> None:
    assert plain("a\x00\x1b\n\u202eb\ud800\uffff猫") == "a\ufffd\ufffd\ufffdb\ufffd猫"


def test_one_feature_and_one_token_can_be_drawn() -> None:
    only = Firing(1, 1, 0, 1, 1, np.array([-0.2, 0.0]), np.array([1]))
    assert len(ids(plots.firing_rates(only), r"bin_\d+")) == 1
