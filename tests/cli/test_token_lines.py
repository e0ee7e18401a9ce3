"""A token beside its features: columns that fit, whatever the numbers and the texts are."""

from __future__ import annotations

from typing import Any

import pytest

from neuroscope.cli.terminal import isolated, width
from neuroscope.cli.token_lines import Layout, heading, meter, token_lines, unseen_lines


def feature(
    index: int = 7, label: str = "a label", activation: float = 1.0, surprise: float | None = 0.5
) -> Any:
    return {"index": index, "label": label, "activation": activation, "surprise": surprise}


def lines(features: list[Any], layout: Layout, token: str = " x", l0: int | None = 9) -> list[str]:
    return list(token_lines({"token": token, "top_features": features, "l0": l0}, layout))


@pytest.mark.parametrize(("columns", "cells"), [(40, 1), (80, 2), (120, 3), (250, 7)])
def test_as_many_features_stand_on_a_line_as_fit(columns: int, cells: int) -> None:
    layout = Layout(columns, None, False)
    (line,) = lines([feature()] * 20, layout)
    assert line.count("a label") == cells
    assert width(line) <= columns
    assert heading(layout).count("act") == cells
    assert width(heading(layout)) <= columns


@pytest.mark.parametrize(
    "hard",
    [
        feature(label="猫" * 40),
        feature(label="e\u0301" * 80),
        feature(index=1_048_575, activation=123456.7, surprise=1e12),
        feature(activation=1e-9, surprise=-1e5),
        feature(label=""),
        feature(label="\x1b[2J\u202e\n"),
        feature(surprise=None),
    ],
    ids=["wide", "marks", "large", "small", "empty", "steering", "no z"],
)
@pytest.mark.parametrize("columns", [40, 80, 133])
def test_a_line_fits_whatever_stands_in_it(hard: Any, columns: int) -> None:
    layout = Layout(columns, 9, False)
    for line in lines([hard, feature()] * 5, layout, token="猫" * 30):
        assert width(line) <= columns
        assert all(c.isprintable() for c in line)


def test_more_features_than_fit_take_more_lines_under_the_token() -> None:
    first, second, third = lines([feature(index) for index in range(9)], Layout(80, 5, False))
    assert first.startswith("␣x ")
    assert [line.split()[0] for line in (second, third)] == ["2", "4"]


def test_a_token_without_features_says_how_many_were_active() -> None:
    assert lines([], Layout(80, None, False)) == ["␣x" + " " * 14 + "(none shown of 9 active)"]
    assert lines([], Layout(80, None, False), l0=None) == ["␣x" + " " * 14 + "(no position before it)"]
    assert list(unseen_lines({"token": ""}, Layout(80, None, False))) == [
        "·" + " " * 15 + "(features not seen)"
    ]


def test_a_surprising_feature_stands_out_in_colour_only() -> None:
    plain, coloured = (lines([feature(surprise=3.0)], Layout(80, None, colour)) for colour in (False, True))
    assert "\x1b" not in plain[0]
    assert "\x1b[33m" in coloured[0]
    assert "\x1b[33m" not in lines([feature(surprise=2.9)], Layout(80, None, True))[0]


def test_the_meter_is_the_mean_of_what_was_measured() -> None:
    tokens = [{"l0": 3, "fvu": 0.25}, {"l0": 4, "fvu": None}, {"l0": None, "fvu": None}]
    assert meter(tokens) == ", L0 3.5, FVU 0.250"
    assert meter([]) == ""


def test_text_from_right_to_left_is_kept_apart_and_other_text_is_left_alone() -> None:
    assert isolated("שלום") == "\u2068שלום\u2069"
    assert isolated("abc 猫 é 12") == "abc 猫 é 12"
