"""SAELens: its activation store on its wrapper of a Hugging Face model, its encoder, and counts of firings only.

Run by the Python of `.venv-saelens`. Of the ways to read the store the cheapest: batches as the model gives them
(`get_raw_llm_batch`), without the buffer that shuffles tokens for training, from a dataset tokenised beforehand, as its
documentation advises. Its store stops the model after the hooked layer. Hooks are on that layer alone.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from datasets import Dataset
from sae_lens import ActivationsStore, JumpReLUSAE, JumpReLUSAEConfig
from sae_lens.load_model import load_model
from sae_lens.saes.sae import SAEMetadata
from talk import Job, serve


def load(work: dict[str, Any]) -> Job:
    torch.set_num_threads(work["threads"])
    windows = np.load(work["windows"])
    hook = f"model.layers.{work['layer']}"
    model = load_model(
        "AutoModelForCausalLM",
        work["model"],
        device="cpu",
        model_from_pretrained_kwargs={"dtype": torch.float32},
        hook_names=[hook],
    ).eval()
    weights = {name: torch.from_numpy(array) for name, array in np.load(work["sae"]).items()}
    d_in, d_sae = weights["W_enc"].shape
    config = JumpReLUSAEConfig(
        d_in=d_in,
        d_sae=d_sae,
        dtype="float32",
        device="cpu",
        apply_b_dec_to_input=False,
        metadata=SAEMetadata(hook_name=hook, context_size=windows.shape[1], prepend_bos=True),
    )
    sae = JumpReLUSAE(config)
    sae.load_state_dict(weights)
    dataset = Dataset.from_dict({"tokens": windows.tolist()})

    @torch.no_grad()
    def run() -> dict[str, Any]:
        store = ActivationsStore.from_sae(
            model,
            sae,
            dataset,
            context_size=windows.shape[1],
            streaming=False,
            store_batch_size_prompts=work["batch"],
            total_tokens=windows.size,
        )
        counts = torch.zeros(d_sae, dtype=torch.int64)
        tokens = 0
        began = time.perf_counter()
        for _ in range(0, len(windows), work["batch"]):
            x, ids = store.get_raw_llm_batch()
            acts = sae.encode(x[ids != work["bos"]])
            counts += (acts > 0).sum(0)
            tokens += len(acts)
        seconds = time.perf_counter() - began
        return {"tokens": tokens, "seconds": seconds, "fired": counts.tolist()}

    return run


if __name__ == "__main__":
    serve(load)
