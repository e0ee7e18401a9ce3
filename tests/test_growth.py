"""The growth curves: an expected line follows from its first point, and each chart shows the data beside it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from bench import curve, stages
from bench.curves import NAMES

GROWTH = Path(__file__).parents[1] / "bench/growth"


def texts(svg: Path) -> set[str]:
    return {
        "".join(node.itertext()) for node in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    }


@pytest.mark.parametrize(
    ("grows", "line"),
    [(0.0, [10.0, 10.0, 10.0]), (10.0, [10.0, 40.0, 160.0]), (2.0, [10.0, 16.0, 40.0])],
)
def test_the_growing_part_of_the_first_point_alone_grows(grows: float, line: list[float]) -> None:
    assert curve.expected(10.0, grows, [5, 20, 80]) == line
    made = curve.series("time", "s", [5, 20, 80], [10.0, 999.0, 1.0], grows=grows, why="so")
    assert made.expected == line


def small() -> curve.Curve:
    sizes = [1, 10]
    times = curve.series("time", "s", sizes, [1.5, 2250], grows=0, why="constant", at_most=3.0)
    return curve.Curve("few", "Of few", "sheep", sizes, [times], {"start_s": 1.0})


def test_the_same_data_give_the_same_chart_with_every_value_in_it(tmp_path: Path) -> None:
    curve.save(small(), {"cores": 2}, tmp_path)
    first = (tmp_path / "few.svg").read_bytes()
    curve.draw(curve.load(tmp_path / "few.json"), tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == first
    shown = texts(tmp_path / "few.svg")
    assert {
        "Of few",
        "sheep",
        "time, s",
        "1.5",
        "2,250",
        "expected: constant",
        "promised: at most this",
    } <= shown


@pytest.mark.parametrize("name", NAMES)
def test_every_curve_says_what_it_measures(name: str) -> None:
    module = importlib.import_module(f"bench.curves.{name}")
    assert module.__doc__
    assert callable(module.measure)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_curve_is_held_against_its_first_point_and_its_chart_shows_it(
    name: str, tmp_path: Path
) -> None:
    recorded = curve.load(GROWTH / f"{name}.json")
    for series in recorded.series:
        assert series.expected == curve.expected(series.measured[0], series.grows, recorded.sizes)
        assert len(series.measured) == len(recorded.sizes)
        assert {curve.number(value) for value in series.measured} <= texts(GROWTH / f"{name}.svg")
    with_version = json.loads((GROWTH / f"{name}.json").read_text())["machine"]["versions"]["matplotlib"]
    curve.draw(recorded, tmp_path / "again.svg")
    if with_version == matplotlib.__version__:
        assert (tmp_path / "again.svg").read_text() == (GROWTH / f"{name}.svg").read_text()
    assert f"(growth/{name}.svg)" in (GROWTH.parent / "README.md").read_text()


def test_a_stages_peak_does_not_begin_with_what_its_parent_held() -> None:
    held = bytearray(b"x") * 300_000_000
    program = "from bench.stages import peak_mb; print(peak_mb())"
    assert float(stages.run([sys.executable, "-c", program])) < 200
    assert stages.peak_mb() > len(held) / 2**20
