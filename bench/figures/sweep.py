"""The sweep's speed beside the model's bare forward pass, and its memory for ten times the corpus.

Speed: chunks of the pairing's own plan, real text. The sweep is `sweep_chunks` whole: texts read, tokenised, through
the model's layers up to the hook, encoded, collected, written. Beside it, chunk by chunk in turns, the same batches go
through transformers' own modules up to the same layer, with nothing else done and no attention mask, the fastest that
transformers offers for them.

Memory: shard and merge as the pipeline starts them, each in a process of its own, over the first documents of the same
corpus and ten times as many, cut short. Model and SAE are the tests' tiny ones, so that next to no memory is
theirs and any growth shows. What is compared is the larger peak of the two processes.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import nn

from bench.figure import Figure, Spread, ratio
from bench.stages import PAIRING, ROOT, stage
from neuroscope import corpus, settings
from neuroscope.corpus.stage import build_chat, build_documents, join
from neuroscope.manifest import SourcesLock
from neuroscope.models.hooks import decoder
from neuroscope.settings import Settings
from neuroscope.sweep import Chunk, planned, sweep_options
from neuroscope.sweep.activations import Instrument
from neuroscope.sweep.documents import read_texts
from neuroscope.sweep.instrument import load_instrument
from neuroscope.sweep.shard import sweep_chunks
from neuroscope.sweep.windows import Batch, batches, make_batch, tokenize

TIMES = 10
DOCUMENTS = 200
"""Of the smaller corpus whose memory is measured; with FEW examples a feature it has what is kept of any corpus."""
FEW = {
    "examples.per_feature": 5,
    "examples.held_out": 6,
    "examples.pool": 400,
    "sweep.chunk_documents": 16,
    "sweep.threads": 1,
}
CHARACTERS = 100
"""Of each of its documents."""


def make_corpus(chosen: Settings, folder: Path) -> Path:
    """The pairing's corpus without conversations that the model would first have to write."""
    wanted = replace(chosen, corpus=replace(chosen.corpus, chat=None))
    documents, chat, whole = (folder / f"{name}.parquet" for name in ("documents", "chat", "corpus"))
    build_documents(wanted, output=documents, progress=False)
    build_chat(wanted, documents=documents, output=chat)
    join(wanted, documents=documents, chat=chat, output=whole)
    return whole


def bare_decoder(model: Any, layer: int) -> nn.Module:
    """transformers' own decoder, ending with `layer`; weights are shared with `model`."""
    bare = copy.copy(decoder(model))
    bare._modules = dict(bare._modules)
    bare.layers = bare.layers[: layer + 1]
    bare.norm = nn.Identity()
    return bare


@torch.inference_mode()
def run_bare(bare: nn.Module, prepared: Sequence[Batch]) -> None:
    for batch in prepared:
        bare(input_ids=batch.ids, use_cache=False)


class Speed:
    """Both sides of one chunk in turns."""

    def __init__(self, chosen: Settings, text: Path, folder: Path) -> None:
        self.chosen, self.text, self.folder = chosen, text, folder
        self.options = sweep_options(chosen)
        sae = SourcesLock(chosen.results / "sources.lock.json").resolve(chosen.pairing.sae.uri).path
        self.instrument, self.chat, self.fingerprint = load_instrument(chosen, sae=sae, corpus_sha256=None)
        self.bare = bare_decoder(self.instrument.backend.model, chosen.pairing.layer)  # type: ignore[attr-defined]
        self.runs = self.real = self.cells = self.fired = 0

    def batches(self, chunk: Chunk) -> list[Batch]:
        ((_, texts),) = read_texts(self.text, [chunk])
        tokens = tokenize(self.chat, chunk.stratum, texts, bos=self.options.bos)
        instrument: Instrument = self.instrument
        rows = batches(tokens, self.options.window, instrument.bos_id, self.options.batch, instrument.shape)
        return [make_batch(tokens, windows, instrument.bos_id) for windows in rows]

    def sweep(self, chunk: Chunk) -> None:
        self.runs += 1
        report = sweep_chunks(
            [chunk],
            self.text,
            self.instrument,
            self.chat,
            fingerprint=self.fingerprint,
            options=self.options,
            folder=self.folder / str(self.runs),  # where no chunk is finished
            progress=False,
        )
        assert report["computed"] == 1

    def pair(self, chunk: Chunk, sweep_first: bool) -> tuple[float, float]:
        """Seconds of the bare pass and of the sweep."""
        prepared = self.batches(chunk)
        self.real += sum(int((batch.token >= 0).sum()) for batch in prepared)
        self.cells += sum(batch.ids.numel() for batch in prepared)
        taken = {}
        for side in ("sweep", "bare") if sweep_first else ("bare", "sweep"):
            began = time.perf_counter()
            if side == "sweep":
                self.sweep(chunk)
            else:
                run_bare(self.bare, prepared)
            taken[side] = time.perf_counter() - began
        return taken["bare"], taken["sweep"]


def speed(chosen: Settings, text: Path, folder: Path, rounds: int) -> Figure:
    torch.set_num_threads(chosen.sweep.threads)
    runs = Speed(chosen, text, folder)
    plan = planned(chosen, corpus.read(text))
    warm = Chunk("warm", plan[0].stratum, plan[0].doc_ids[:4])
    runs.pair(warm, True)
    runs.real = runs.cells = 0
    chunks = [plan[number % len(plan)] for number in range(rounds)]
    pairs = [runs.pair(chunk, bool(number % 2)) for number, chunk in enumerate(chunks)]
    return Figure(
        "sweep-vs-bare-forward",
        "sweep of real text: read, tokenised, run, encoded, collected, written",
        "transformers' forward pass of its batches up to the hooked layer",
        ratio(pairs),
        "x",
        at_least=0.92,
        details={
            "tokens": runs.real,
            "tokens_per_s": round(runs.real / sum(swept for _, swept in pairs)),
            "bare_tokens_per_s": round(runs.real / sum(bare for bare, _ in pairs)),
            "not_text_percent": round(100 * (1 - runs.real / runs.cells), 1),
            "slowest_chunk_s": round(max(swept for _, swept in pairs), 1),
        },
        note="Cells that are not text are the padding and one BOS a window; both sides run them.",
    )


def tiny_pairing(folder: Path) -> tuple[dict[str, Any], Path]:
    """Settings that put the tests' tiny model and SAE in the pairing's place, and the SAE's file."""
    sys.path.insert(0, str(ROOT / "tests"))
    from fakes.tiny import D_SAE, TINY_LAYER, save_tiny_llama, save_tiny_sae

    sae = save_tiny_sae(folder / "sae.npz")
    return {
        "model": str(save_tiny_llama(folder / "model")),
        "layer": TINY_LAYER,
        "device": "cpu",
        "sae.source": str(sae),
        "sae.width": D_SAE,
        **FEW,
    }, sae


def memory(text: Path, folder: Path) -> Figure:
    overrides, sae = tiny_pairing(folder)
    whole = corpus.read(text).filter(pl.col("stratum") != "chat")
    whole = whole.with_columns(pl.col("text").str.head(CHARACTERS))
    peaks: dict[int, dict[str, float]] = {}
    for times in (1, TIMES):
        mine = folder / f"times-{times}"
        mine.mkdir()
        whole.head(DOCUMENTS * times).write_parquet(mine / "corpus.parquet")
        overrides["examples.samples"] = DOCUMENTS * times
        peaks[times] = {
            name: stage(name, overrides, mine / "corpus.parquet", sae, mine).peak_mb
            for name in ("shard", "merge")
        }
    found = max(peaks[TIMES].values()) / max(peaks[1].values())
    return Figure(
        "sweep-memory",
        f"the sweep's peak memory, {DOCUMENTS * TIMES:,} documents",
        f"the same, {DOCUMENTS:,} documents",
        Spread.of([found]),
        "x",
        at_most=1.05,
        details={
            f"{name}_{times}x_mb": round(peak)
            for times, stages in peaks.items()
            for name, peak in stages.items()
        },
        note="Peaks of whole processes, of which most are the libraries.",
    )


def measure(rounds: int) -> list[Figure]:
    chosen = settings.load(PAIRING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = make_corpus(chosen, folder)
        return [memory(text, folder), speed(chosen, text, folder, rounds)]
