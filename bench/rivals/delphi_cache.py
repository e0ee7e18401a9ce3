"""Delphi: its cache of a layer's latents, run and saved in splits as its own `populate_cache` does.

Run by the Python of `.venv-delphi`. The SAE is its own class for Gemma Scope's weights. It runs the whole model without
the head (its `AutoModel`), for BOS too, keeps every activation, and counts firings. What is timed is `LatentCache.run`
and `save_splits` with its default of five; tokenising is not, and no statistics are asked for.
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from delphi.config import CacheConfig
from delphi.latents import LatentCache
from delphi.sparse_coders.custom.gemmascope import JumpReluSae
from talk import Job, serve
from transformers import AutoModel


def load(work: dict[str, Any]) -> Job:
    torch.set_num_threads(work["threads"])
    windows = torch.from_numpy(np.load(work["windows"]))
    hook = f"layers.{work['layer']}"
    model = AutoModel.from_pretrained(work["model"], dtype=torch.float32).eval()
    weights = {name: torch.from_numpy(array) for name, array in np.load(work["sae"]).items()}
    sae = JumpReluSae(*weights["W_enc"].shape)
    sae.load_state_dict(weights)

    @torch.no_grad()
    def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            cache = LatentCache(model, {hook: partial(JumpReluSae.encode, sae)}, batch_size=work["batch"])
            cache.run(windows.numel(), windows)
            cache.save_splits(n_splits=CacheConfig.n_splits, save_dir=Path(folder))
            seconds = time.perf_counter() - began
        place = cache.cache.latent_locations[hook]
        content = windows != work["bos"]
        feature = place[content[place[:, 0], place[:, 1]], 2]
        counts = torch.bincount(feature, minlength=sae.W_enc.shape[1])
        return {"tokens": int(content.sum()), "seconds": seconds, "fired": counts.tolist()}

    return run


if __name__ == "__main__":
    serve(load)
