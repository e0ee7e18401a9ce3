"""Wide SAEs within a stated budget: a chunk takes blocks of activations, one array a feature, and what fired.

Run by hand at a million features: `python tests/sweep/test_wide.py 1048576`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep.activations import BatchLimit, Instrument, measure
from neuroscope.sweep.collect import collect
from neuroscope.sweep.plan import Chunk, SweepOptions
from neuroscope.sweep.windows import ChunkTokens

D_IN, TOKENS = 16, 2048
THRESHOLD = 3.7
"""In standard deviations of a pre-activation, more or less: some 40 of 131,072 features fire on a token."""

BYTES_PER_FEATURE = 48
"""Of a chunk, for an instant: four sums of 8 bytes and what they are chosen with. The merge keeps 432 a stratum."""

BYTES_PER_FIRING = 250
BLOCKS = 3 * 2**20 * 5
"""The block at work, with what the comparison and the search for its firings take beside it."""


class Noise:
    """A model whose residuals are standard normal, whatever the text."""

    def residuals(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.randn(*ids.shape, D_IN, generator=torch.Generator().manual_seed(int(ids[0, 1])))


def run_chunk(d_sae: int) -> dict[str, int]:
    """Bytes that a chunk added to this process's peak, and how much fired."""
    generator = torch.Generator().manual_seed(0)
    encoder = torch.randn(D_IN, d_sae, generator=generator) / D_IN**0.5
    sae = SparseAutoencoder(encoder, torch.zeros(d_sae), torch.full((d_sae,), THRESHOLD))
    lengths = np.full(16, TOKENS // 16, np.int64)
    document = np.repeat(np.arange(16, dtype=np.int32), lengths)
    position = np.tile(np.arange(TOKENS // 16, dtype=np.int32), 16)
    tokens = ChunkTokens(np.arange(TOKENS, dtype=np.int32), document, document, position, lengths)
    chunk = Chunk("wide-00000", "wide", tuple(map(str, range(16))))
    options = SweepOptions()
    instrument = Instrument(Noise(), sae, None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    acts = measure(tokens, instrument, options, BatchLimit(options.batch))
    arrays = collect(chunk, tokens, acts, d_sae, options)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fired = arrays["stats_n_fired"]
    return {"bytes": (after - before) * 1024, "firings": int(fired.sum()), "features": len(fired)}


def test_a_chunk_of_131072_features_stays_within_its_budget() -> None:
    """In a process of its own, whose peak is the chunk's. Dense activations would take 1,074 MB."""
    run = subprocess.run(
        [sys.executable, str(Path(__file__)), str(2**17)], stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(run.stdout)
    assert found["firings"] > 20 * TOKENS
    budget = BLOCKS + BYTES_PER_FEATURE * 2**17 + BYTES_PER_FIRING * found["firings"]
    assert found["bytes"] < budget
    assert budget < 2**17 * TOKENS * 4 / 10  # the budget says something


if __name__ == "__main__":
    run_chunk(64)  # libraries take memory of their own at first use
    print(json.dumps(run_chunk(int(sys.argv[1]))))
