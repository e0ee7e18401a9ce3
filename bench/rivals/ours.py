"""The sweep as `neuroscope` runs it: plan, tokenise, forward, encode, every collector, chunk files."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from bench.rivals.talk import Job, serve
from neuroscope import settings
from neuroscope.sweep.chunk_file import ChunkFile
from neuroscope.sweep.documents import read_index
from neuroscope.sweep.instrument import load_instrument
from neuroscope.sweep.plan import SweepOptions, plan_chunks
from neuroscope.sweep.shard import sweep_chunks


def load(work: dict[str, Any]) -> Job:
    torch.set_num_threads(work["threads"])
    chosen, corpus = settings.load(work["pairing"]), Path(work["corpus"])
    options = SweepOptions(**work["options"])
    instrument, chat, fingerprint = load_instrument(chosen, sae=Path(work["sae"]), corpus_sha256=None)

    def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            documents = read_index(corpus)
            chunks = plan_chunks(documents, len(documents), len(documents))
            done = sweep_chunks(
                chunks,
                corpus,
                instrument,
                chat,
                fingerprint=fingerprint,
                options=options,
                folder=Path(folder),
                progress=False,
            )
            seconds = time.perf_counter() - began
            counts = [0] * instrument.sae.d_sae
            tokens = 0
            for chunk in done["chunks"]:
                with ChunkFile(Path(folder) / chunk["file"]) as file:
                    stats = file.stats()
                tokens += int(stats["n_tokens"])
                for feature, fired in zip(stats["features"].tolist(), stats["n_fired"].tolist(), strict=True):
                    counts[feature] += fired
        return {"tokens": tokens, "seconds": seconds, "fired": counts}

    return run


if __name__ == "__main__":
    serve(load)
