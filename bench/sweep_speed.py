"""How much of a bare forward pass's speed the sweep keeps, and where the rest goes.

Both run the same batches of real text through the pairing's model up to the hooked layer; the sweep also encodes,
collects and writes chunk files. They take turns, chunk by chunk, so that a busy machine slows both alike.

    python bench/sweep_speed.py smollm2-135m results/smollm2-135m/corpus.parquet --documents 64
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from neuroscope import corpus, settings
from neuroscope.manifest import SourcesLock
from neuroscope.sweep import plan_chunks, sweep_options
from neuroscope.sweep.activations import BatchLimit, Instrument, measure
from neuroscope.sweep.chunk_file import write_chunk
from neuroscope.sweep.collect import collect
from neuroscope.sweep.instrument import load_instrument
from neuroscope.sweep.plan import SweepOptions
from neuroscope.sweep.windows import ChunkTokens, batches, make_batch, tokenize


def bare_forward(tokens: ChunkTokens, instrument: Instrument, options: SweepOptions) -> None:
    for windows in batches(tokens, options.window, instrument.bos_id, options.batch):
        batch = make_batch(tokens, windows, instrument.bos_id)
        instrument.backend.residuals(batch.ids, batch.mask)


class Clock:
    """Seconds of processor and of wall clock, by what they were spent on."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def __call__(self, name: str, job: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        result = job(*arguments, **options)
        total = self.spent.setdefault(name, [0.0, 0.0])
        total[0] += time.process_time() - cpu
        total[1] += time.perf_counter() - wall
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairing")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--sae", type=Path, help="SAE file (default: the pairing's)")
    parser.add_argument("--documents", type=int, default=64)
    parser.add_argument("--chunk-documents", type=int, default=32)
    arguments = parser.parse_args()
    chosen = settings.load(arguments.pairing)
    torch.set_num_threads(chosen.sweep.threads)
    documents = corpus.read(arguments.corpus)
    text_of = dict(documents.select("doc_id", "text").iter_rows())
    lock = SourcesLock(chosen.results / "sources.lock.json")
    sae = arguments.sae or lock.resolve(chosen.pairing.sae.uri).path
    instrument, chat, _ = load_instrument(chosen, sae=sae, corpus_sha256=None)
    options = sweep_options(chosen)
    clock = Clock()
    limit = BatchLimit(options.batch)
    count = fired = 0
    with tempfile.TemporaryDirectory() as folder:
        for chunk in plan_chunks(documents, arguments.documents, arguments.chunk_documents):
            texts = [text_of[doc_id] for doc_id in chunk.doc_ids]
            tokens = clock("tokenise", tokenize, chat, chunk.stratum, texts, bos=options.bos)
            clock("bare forward", bare_forward, tokens, instrument, options)
            acts = clock("forward and encode", measure, tokens, instrument, options, limit)
            arrays = clock("collect", collect, chunk, tokens, acts, instrument.sae.d_sae, options)
            clock("write", write_chunk, Path(folder) / f"{chunk.id}.npz", arrays, {})
            count += len(tokens)
            fired += len(acts.feature)
    spent = clock.spent
    for name, (cpu, wall) in spent.items():
        print(f"{name:20} {cpu:8.2f} s of processor {wall:8.2f} s of wall clock")
    for column, name in enumerate(("processor", "wall clock")):
        bare = spent["bare forward"][column]
        whole = sum(seconds[column] for seconds in spent.values()) - bare
        print(
            f"{name}: {count / bare:.0f} tokens/s bare, {count / whole:.0f} in the sweep: {bare / whole:.3f}"
        )
    print(f"{count} tokens, L0 {fired / count:.1f}")


if __name__ == "__main__":
    main()
