"""A token and its features as lines of a terminal: the token left, number, label, activation and z right.

Tokens and labels were written by texts and models: they reach the terminal through `visible` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from neuroscope.cli.terminal import clip, isolated, pad, visible, width

NARROWEST_CELL = 30
WIDEST_CELL = 48
GAP = "  "
NUMBER, ACTIVATION, Z = 5, 6, 5
NO_TEXT = "·"
"""A token that adds nothing to the text: inside a character, of a stop string, or the end of the turn."""
SURPRISING = 3.0
"""z from which a label stands out."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things go in lines of `columns`."""

    columns: int
    per_token: int | None
    """Features shown of a token at most; None for as many as fit on its line."""
    colour: bool

    @property
    def token(self) -> int:
        """Columns of the token."""
        return max(8, min(18, self.columns // 6 + 1))

    @property
    def cells(self) -> int:
        """Features on a line."""
        fit = max(1, (self.columns - self.token) // (NARROWEST_CELL + len(GAP)))
        return fit if self.per_token is None else min(fit, self.per_token)

    @property
    def cell(self) -> int:
        """Columns of a feature."""
        return min(WIDEST_CELL, (self.columns - self.token) // self.cells - len(GAP))


def heading(layout: Layout) -> str:
    """The line above the tokens."""
    titles = _cell_text("", "feature", "act", "z", layout.cell)
    cells = [titles if layout.per_token != 0 else ""] * layout.cells
    line = (pad("token", layout.token) + "".join(GAP + cell for cell in cells)).rstrip()
    return click.style(line, dim=True) if layout.colour else line


def token_lines(token: Mapping[str, Any], layout: Layout) -> Iterator[str]:
    """The lines of one token of the stream; the first begins with its text."""
    text = visible(token["token"]).replace(" ", "␣") or NO_TEXT
    shown = isolated(clip(text, layout.token))
    left = shown + " " * max(0, layout.token - width(clip(text, layout.token)))
    left = click.style(left, bold=True) if layout.colour else left
    features = token["top_features"][: layout.per_token or layout.cells]
    if not features:
        yield f"{left}{GAP}{_nothing(token)}"
    for start in range(0, len(features), layout.cells):
        cells = [_cell(feature, layout) for feature in features[start : start + layout.cells]]
        yield (left if start == 0 else " " * layout.token) + "".join(GAP + cell for cell in cells)


def unseen_lines(token: Mapping[str, Any], layout: Layout) -> Iterator[str]:
    """The line of a token whose features did not come."""
    text = clip(visible(token["token"]).replace(" ", "␣") or NO_TEXT, layout.columns - 20)
    yield f"{isolated(text)}{' ' * max(0, layout.token - width(text))}{GAP}(features not seen)"


def meter(tokens: Sequence[Mapping[str, Any]]) -> str:
    """`, L0 32.1, FVU 0.087`: means over tokens that have them."""
    told = ""
    for name, key, form in (("L0", "l0", ".1f"), ("FVU", "fvu", ".3f")):
        values = [token[key] for token in tokens if token.get(key) is not None]
        if values:
            told += f", {name} {sum(values) / len(values):{form}}"
    return told


def _nothing(token: Mapping[str, Any]) -> str:
    if token.get("l0") is None:
        return "(no position before it)"
    return f"(none shown of {token['l0']} active)"


def _cell(feature: Mapping[str, Any], layout: Layout) -> str:
    surprise = feature["surprise"]
    activation = feature["activation"]
    number = str(feature["index"])
    act = f"{activation:.1f}" if abs(activation) < 1000 else f"{activation:.0f}"
    z = "-" if surprise is None else f"{surprise:+.1f}" if abs(surprise) < 100 else f"{surprise:+.0f}"
    text = _cell_text(number, visible(feature["label"]), act, z, layout.cell)
    if layout.colour and surprise is not None and surprise >= SURPRISING:
        return click.style(text, fg="yellow")
    return text


def _cell_text(number: str, label: str, activation: str, z: str, columns: int) -> str:
    figures = f" {activation:>{ACTIVATION}} {z:>{Z}}"
    start = f"{number:>{NUMBER}} "
    room = columns - len(start) - len(figures)
    label = clip(label, room)
    return start + isolated(label) + " " * (room - width(label)) + figures
