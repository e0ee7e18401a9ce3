"""The pipeline's call that trains the pairing's SAE: corpus in, params.npz and card.json out.

The work itself is `data`'s and `training`'s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from neuroscope import corpus as corpus_files
from neuroscope.identity import tokenizer_sha256
from neuroscope.manifest import SourcesLock, library_versions
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.settings import Settings
from neuroscope.sources import file_sha256
from neuroscope.training.data import collect
from neuroscope.training.loop import TrainingPlan, train


def train_sae(settings: Settings, *, corpus: Path, output: Path, work: Path) -> dict[str, Any]:
    """Trains an SAE on the residual stream of the pairing's model at its layer; returns the card.

    `output` is the folder of params.npz and card.json. `work` keeps the collected residuals (2 bytes x d_model a
    token) and the checkpoint, so that a killed run goes on; delete it afterwards.
    """
    torch.set_num_threads(settings.sweep.threads)
    pairing, wanted = settings.pairing, settings.training
    source = SourcesLock(settings.results / "sources.lock.json").resolve(pairing.model)
    model, tokenizer = load_model(
        source.path, device=settings.device, dtype=pairing.dtype, quantization=settings.torch_quantization
    )
    options = settings.sweep
    made_from = json.dumps(
        [
            pairing.model,
            source.revision or source.sha256,
            pairing.layer,
            pairing.dtype,
            tokenizer_sha256(tokenizer),
        ]
    )
    files = collect(
        corpus_files.read(corpus),
        ChatTokenizer(tokenizer),
        TorchBackend(model, tokenizer, pairing.layer),
        work / "activations",
        tokens=wanted.tokens,
        held_out=wanted.held_out,
        window=options.window,
        batch=options.batch,
        bos=options.bos,
        outlier_norm=options.outlier_norm,
        chunk_documents=settings.sweep.chunk_documents,
        made_from=made_from,
    )
    plan = TrainingPlan(
        width=wanted.width,
        k=wanted.k,
        steps=wanted.steps,
        batch=wanted.batch,
        lr=wanted.lr,
        warmup=wanted.warmup,
        decay=wanted.decay,
        aux_k=wanted.aux_k,
        aux_weight=wanted.aux_weight,
        dead_tokens=wanted.dead_tokens,
        seed=wanted.seed,
    )
    report = json.loads(corpus.with_suffix(".json").read_text(encoding="utf-8"))
    notes = {
        "model": pairing.model,
        "layer": pairing.layer,
        "window": options.window,
        "bos": options.bos,
        "corpus_sha256": file_sha256(corpus),
        "sources": report["sources"],
        "tokens_by_stratum": files.by_stratum,
        "held_out_split": f"{wanted.held_out:.0%} of the documents, by a hash of their content",
        "versions": library_versions(),
    }
    return train(files, plan, output, notes=notes, checkpoint=work / "checkpoint.pt")
