"""What the path of an SAE says in the layouts of known releases: its layer, its width, its L0.

Only names are read here; what the files hold is the formats' business (neuroscope/sae/formats).
"""

from __future__ import annotations

import re

_LAYER = re.compile(r"(?<![A-Za-z0-9])(layer_|layers\.|blocks\.|layer|L(?=\d+[A-Z]+-\d+x))(\d+)")
"""`layer_20/` and `layer_12_width_16k` (Gemma Scope 1 and 2), `layers.10/` (sparsify), `blocks.10.hook_resid_post/`
(SAELens), `layer3.sae.pt` (Qwen-Scope), `Llama3_1-8B-Base-L15R-8x/` (Llama Scope)."""
_WIDTH = re.compile(r"width_(\d+[kKmM]?)(?![0-9A-Za-z])")
_L0 = re.compile(r"(?<![A-Za-z])[lL]0_(\d+|small|medium|big)(?![0-9A-Za-z])")
_QWEN_WIDTH = re.compile(r"-W(\d+)K-")
"""`SAE-Res-Qwen3-8B-Base-W64K-L0_50`: the width in units of 1,024."""
_LLAMA_SCOPE = re.compile(r"Llama3_1-8B-\w+-L(?:X|\d+)[A-Z]+-(\d+)x")
_LLAMA_SCOPE_D_IN = 4096
"""`-8x` is eight features for each of the model's 4,096 dimensions."""


def parse_width(width: int | str) -> int:
    """16384 from 16384, "16384" or "16k": releases round powers of two to thousands."""
    if isinstance(width, int):
        return width
    if width.isdigit():
        return int(width)
    thousands = int(width[:-1]) * (1000 if width[-1] in "kK" else 1_000_000)
    return int(
        1 << round(thousands.bit_length() - 1 + (thousands > 1.42 * (1 << (thousands.bit_length() - 1))))
    )


def layer_in(path: str) -> int | None:
    """The decoder layer that `path` names, from 0."""
    found = _LAYER.search(path)
    return int(found[2]) if found else None


def width_in(path: str, repository: str = "") -> int | None:
    """The number of features that `path`, else the name of its repository, states."""
    if found := _WIDTH.search(path):
        return parse_width(found[1])
    if found := _QWEN_WIDTH.search(repository):
        return int(found[1]) * 1024
    if found := _LLAMA_SCOPE.search(path) or _LLAMA_SCOPE.search(repository):
        return int(found[1]) * _LLAMA_SCOPE_D_IN
    return None


def l0_in(path: str, repository: str = "") -> int | str | None:
    """The mean L0 that `path`, else the name of its repository, states; Gemma Scope 2 has words for it."""
    found = _L0.search(path) or _L0.search(repository)
    if found is None:
        return None
    return int(found[1]) if found[1].isdigit() else found[1]


def at_layer(path: str, layer: int) -> str | None:
    """`path` with another layer in it; None when it names no layer."""
    moved, count = _LAYER.subn(rf"\g<1>{layer}", path, count=1)
    return moved if count else None


def at_width(path: str, width: int) -> str | None:
    """`path` with another number of features in it; None when it names none."""
    moved, count = _WIDTH.subn(f"width_{_release_width(width)}", path, count=1)
    return moved if count else None


def _release_width(width: int) -> str:
    return f"{width >> 20}m" if width >= 1 << 20 else f"{width // 1000}k"
