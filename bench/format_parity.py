"""How far each SAE release format is from its release's own published code: a Markdown table of largest differences.

Both read the same miniature releases with random weights (tests/fakes/releases.py): Neuroscope in float32 with
everything folded into the weights, the published formula step by step in float64 NumPy (tests/fakes/published.py).
Relative is to the largest value.

    python bench/format_parity.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes import published, releases

from neuroscope.sae import load_sae

D_IN, D_SAE, TOKENS = 256, 2048, 256


def differences(name: str, folder: Path) -> tuple[float, float, float, float, int]:
    """Largest absolute and relative differences of acts and of x_hat, and activations on one side only."""
    case = published.CASES[name]
    path = case.write(folder, D_IN, D_SAE, 0)
    x = releases.residuals(TOKENS, D_IN)
    acts, x_hat = case.published(path, x.astype(np.float64))
    sae = load_sae(path, format=case.format, device="cpu")
    found = sae.encode(torch.from_numpy(x))
    decoded = sae.decode(found, torch.from_numpy(x)).numpy()
    off_acts, off_x_hat = np.abs(found.numpy() - acts).max(), np.abs(decoded - x_hat).max()
    one_sided = int(((found.numpy() > 0) != (acts > 0)).sum())
    return off_acts, off_acts / acts.max(), off_x_hat, off_x_hat / np.abs(x_hat).max(), one_sided


def main() -> None:
    print(f"d_in {D_IN}, d_sae {D_SAE}, {TOKENS} residuals; float32 against float64.\n")
    print("| release | acts, absolute | relative | x_hat, absolute | relative | active on one side only |")
    print("|---|---|---|---|---|---|")
    for name in published.CASES:
        with tempfile.TemporaryDirectory() as folder:
            *sizes, one_sided = differences(name, Path(folder))
        print(f"| {name} | {' | '.join(f'{size:.1e}' for size in sizes)} | {one_sided} |")


if __name__ == "__main__":
    main()
