"""One small file per release format; this table is the only list of them."""

from __future__ import annotations

from collections.abc import Callable

from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.formats import gemma_scope

FORMATS: dict[str, Callable[..., SparseAutoencoder]] = {"gemma_scope": gemma_scope.load}
"""name -> load(path: Path, *, decoder: bool, input_norm: str | None) on the CPU."""

__all__ = ["FORMATS"]
