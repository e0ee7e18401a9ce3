"""One small file per release format; this table is the only list of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.formats import (
    dictionary_learning,
    gemma_scope,
    gemma_scope_2,
    goodfire,
    llama_scope,
    qwen_scope,
    sae_lens,
    sparsify,
)

_MODULES: dict[str, ModuleType] = {
    "gemma_scope": gemma_scope,
    "gemma_scope_2": gemma_scope_2,
    "sae_lens": sae_lens,
    "sparsify": sparsify,
    "dictionary_learning": dictionary_learning,
    "goodfire": goodfire,
    "llama_scope": llama_scope,
    "qwen_scope": qwen_scope,
}
FORMATS: dict[str, Callable[..., SparseAutoencoder]] = {
    name: module.load for name, module in _MODULES.items()
}
"""name -> load(path: Path, *, decoder: bool, input_norm: str | None) on the CPU."""

__all__ = ["FORMATS", "looks_like"]


def looks_like(path: Path) -> str | None:
    """The format whose files have the names that `path` or what lies in it has; None when no or several do."""
    names = [path.name, f"{path.parent.name}/{path.name}"]
    found = {
        name
        for name, module in _MODULES.items()
        if (any(path.glob(module.FILE)) if path.is_dir() else any(Path(n).match(module.FILE) for n in names))
    }
    return found.pop() if len(found) == 1 else None
