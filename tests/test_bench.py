"""The benchmarks' table is the record's, every figure is held against what it must reach, and a broken one shows."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import table
from bench.figure import Figure, Spread, ratio
from bench.figures import NAMES
from bench.instrumented import is_on, kept

BENCH = Path(__file__).parents[1] / "bench"


def figure(median: float, **promise: float) -> Figure:
    return Figure("speed", "decode", "generate", Spread(median, median, median), "x", **promise)


def grouped(*figures: Figure) -> table.Group:
    return table.group([{**asdict(one), "kept": one.kept} for one in figures], {"cores": 2}, 3)


@pytest.mark.parametrize(
    ("measured", "kept"),
    [
        (figure(1.4, at_least=1.5), False),
        (figure(1.5, at_least=1.5), True),
        (figure(1.6, at_most=1.5), False),
        (figure(1.5, at_most=1.5), True),
        (figure(1.5), None),
    ],
)
def test_a_figure_is_kept_when_its_median_reaches_what_is_promised(measured: Figure, kept: bool) -> None:
    assert measured.kept is kept
    assert table.broken(grouped(measured)) == (["speed"] if kept is False else [])
    assert ("(not reached)" in table.markdown({NAMES[0]: grouped(measured)})) is (kept is False)


def test_the_ratio_says_how_many_times_faster_the_second_is() -> None:
    assert ratio([(3.0, 1.0), (4.0, 2.0), (10.0, 1.0)]) == Spread(3.0, 2.0, 10.0)


def test_a_part_that_ran_again_leaves_the_others_figures_and_the_text_around_the_table(
    tmp_path: Path,
) -> None:
    readme, front, results = (tmp_path / name for name in ("README.md", "front.md", "results.json"))
    front.write_text(f"{table.SHORT_HEAD}| old | row |\n")
    readme.write_text(f"before\n\n{table.HEAD}| old | row |\n\nafter\n")
    results.write_text(json.dumps({"gone": grouped(figure(9))}))
    table.save({NAMES[0]: grouped(figure(1.25, at_least=1))}, results, readme, front)
    assert front.read_text() == table.SHORT_HEAD
    assert list(json.loads(results.read_text())) == [NAMES[0]]
    assert readme.read_text() == (
        f"before\n\n{table.HEAD}| decode | generate | at least 1 | **1.25** x | 1.25, 1.25 |\n\nafter\n"
    )


def test_what_the_instrument_keeps_is_of_tokens_beside_each_other() -> None:
    """1 s of 10 with the instrument on, on a machine that grows slower all the time and once stops."""
    assert [is_on(token) for token in range(4)] == [True, False, False, True]
    seconds = [10.0 + 0.1 * token + is_on(token) for token in range(40)]
    without = 10 + 0.1 * 19.5
    assert kept(seconds) == pytest.approx(without / (without + 1))
    seconds[17] += 100
    assert kept(seconds) == pytest.approx(without / (without + 1), rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_imported_and_says_what_it_measures(name: str) -> None:
    module = importlib.import_module(f"bench.figures.{name}")
    assert module.__doc__
    assert callable(module.measure)


def test_the_table_is_the_one_of_the_last_run() -> None:
    known = json.loads((BENCH / "results.json").read_text())
    assert set(known) <= set(NAMES)
    assert table.markdown(known) in (BENCH / "README.md").read_text()
    assert table.short(known) in (BENCH.parent / "README.md").read_text()
    recorded = [one for group in known.values() for one in group["figures"]]
    names = [one["name"] for one in recorded]
    assert len(names) == len(set(names))
    for one in recorded:
        said = {key: value for key, value in one.items() if key not in ("kept", "measured")}
        assert Figure(**said, measured=Spread(**one["measured"])).kept == one["kept"]
