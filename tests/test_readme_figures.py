"""The README's figures of the shipped SAE are those of its card, and as good as they must be."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CARD = json.loads((ROOT / "workflow/resources/smollm2-135m-layer20-4k/card.json").read_text())


def test_the_shipped_sae_is_sparse_explains_most_and_wastes_no_feature() -> None:
    held_out = CARD["held_out"]
    assert 25 <= held_out["l0"] <= 45
    assert held_out["fvu"] <= 0.17
    assert held_out["dead_share"] < 0.05
    assert held_out["dense_features"] <= 5
    assert CARD["training_tokens"] >= 1_000_000


def test_the_readme_quotes_the_card() -> None:
    assert f"L0 {CARD['held_out']['l0']:.1f}" in README
    assert f"FVU {CARD['held_out']['fvu']:.3f}" in README


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_in_the_readme_is_python(code: str) -> None:
    ast.parse(code)


def test_no_mark_of_a_missing_piece_is_left() -> None:
    assert "<!--" not in README
