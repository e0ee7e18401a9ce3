"""Decoding on a GPU at Gemma 2 2B's real shape, random weights in bfloat16 with an SAE of 16,384 features.

python -m bench.gpu

One line of JSON for each way to run a token and each length of text before it: milliseconds a token with and without
the SAE, and how far logits and residual are from the model's own pass over the same tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import torch

from bench.figures.instrument import LAYER, random_gemma, random_sae
from neuroscope.models.decode import distance
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae.reading import FeatureReader

WAYS = ("model", "lean", "graph")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="all that the device has")
    parser.add_argument("--before", nargs="+", type=int, default=[8, 1000, 4000], metavar="TOKENS")
    parser.add_argument("--tokens", type=int, default=64)
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("There is no CUDA device. To see that it runs: --device cpu --tokens 4.")
    ways = chosen.ways or (WAYS if chosen.device.startswith("cuda") else ("model", "lean"))
    model: Any = random_gemma()
    sae = random_sae(TorchBackend(model, None, LAYER))
    for name in ("W_enc", "b_enc", "threshold", "W_dec", "b_dec"):
        setattr(sae, name, getattr(sae, name).to(chosen.device))
    model, reader = model.to(chosen.device), FeatureReader(sae)
    for before in chosen.before:
        expected: list[Any] = []
        for way in ("model", *(way for way in ways if way != "model")):
            backend = TorchBackend(model, None, LAYER, decode=way)
            found, alone = decoded(backend, before, chosen.tokens, None)
            _, whole = decoded(backend, before, chosen.tokens, reader)
            expected = expected or found
            apart = max(map(distance, found, expected))
            line = {
                "way": way,
                "decoding": str(backend.decode),
                "tokens_before": before,
                "ms_without_sae": alone,
                "ms_with_sae": whole,
                "apart": apart,
            }
            print(json.dumps(line), flush=True)


def decoded(
    backend: TorchBackend, before: int, tokens: int, reader: FeatureReader | None
) -> tuple[list[torch.Tensor], float]:
    """Logits and residuals of always the same tokens behind a prompt, and the median milliseconds of one."""
    ids = [(7919 * i + 13) % 250_000 for i in range(before + tokens)]
    backend.rewind(0)
    backend.forward(ids[:before])
    found, times = [], []
    for token in ids[before:]:
        started = time.perf_counter()
        forward = backend.forward([token])
        if reader is not None:
            reader.read(forward.residual)
        int(forward.logits.argmax())  # what an answer waits for
        times.append(time.perf_counter() - started)
        found += [forward.logits.cpu(), forward.residual.cpu()]
    return found, round(1e3 * median(times), 3)


if __name__ == "__main__":
    main()
