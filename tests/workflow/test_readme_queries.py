"""The README's promises that can be run: its SQL on a finished run, its figures against where they come from."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import duckdb
import pytest
from fakes.checkout import Checkout

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_there_are_five_queries() -> None:
    assert len(blocks("sql")) == 5


@pytest.mark.parametrize("query", blocks("sql"))
def test_every_query_runs_on_a_finished_run(query: str, finished: Checkout) -> None:
    with duckdb.connect(str(finished.results / "results.duckdb"), read_only=True) as connection:
        result = connection.execute(query)
        assert result.description
        result.fetchall()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_in_the_readme_is_python(code: str) -> None:
    ast.parse(code)


def test_the_sae_is_as_good_as_its_card_says_it_must_be() -> None:
    card = json.loads((ROOT / "workflow/resources/smollm2-135m-layer20-4k/card.json").read_text())
    held_out = card["held_out"]
    assert 25 <= held_out["l0"] <= 45
    assert held_out["fvu"] <= 0.17
    assert held_out["dead_share"] < 0.05
    assert held_out["dense_features"] <= 5
    assert card["training_tokens"] >= 1_000_000
    assert f"L0 {held_out['l0']:.1f}" in README
    assert f"FVU {held_out['fvu']:.3f}" in README


def test_no_mark_of_a_missing_piece_is_left() -> None:
    assert "<!--" not in README
