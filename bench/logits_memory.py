"""Memory and time of promoted and suppressed tokens at Gemma 2 2B's real shape, on random weights.

python bench/logits_memory.py --features 16384
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm
from transformers import Gemma2Config, Gemma2ForCausalLM

from neuroscope.autointerp.logits import compute_logits

VOCABULARY, D_MODEL = 256_000, 2304


def model() -> nn.Module:
    """A Gemma 2 of that width and vocabulary, of one layer: only its head and its final norm are read."""
    config = Gemma2Config(
        vocab_size=VOCABULARY,
        hidden_size=D_MODEL,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        intermediate_size=256,
    )
    with torch.device("meta"):
        made = Gemma2ForCausalLM(config).to(torch.bfloat16)
    return made.to_empty(device="cpu").eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=16_384)
    features = parser.parse_args().features
    W_dec, gemma = torch.randn(features, D_MODEL), model()
    gemma.get_output_embeddings().weight.data.normal_()
    for norm in (part for part in gemma.modules() if hasattr(part, "eps")):
        norm.weight.data.fill_(1.0)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        rows = compute_logits(
            W_dec=W_dec,
            model=gemma,
            tokens=str,
            out=Path(folder) / "logits.parquet",
            progress=lambda blocks: tqdm(blocks, unit="block"),
        )
    figures = {
        "features": features,
        "vocabulary": VOCABULARY,
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "weights_mb": (VOCABULARY * D_MODEL * 2 + features * D_MODEL * 4) >> 20,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
