"""How the product grows: one module for each size, with a function `measure(quick: bool) -> Curve`."""

from __future__ import annotations

NAMES: tuple[str, ...] = ("corpus", "width", "subscribers")
