"""The pipeline's call: the pairing as the settings name it, verified on its corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from neuroscope import corpus as corpus_files
from neuroscope.manifest import SourcesLock
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.settings import Settings
from neuroscope.sources import file_sha256
from neuroscope.sweep.instrument import load_instrument
from neuroscope.verification import QuantizationEffect, Verification, write_verification
from neuroscope.verify.quantized import quantization_effect
from neuroscope.verify.report import verify_subject
from neuroscope.verify.subject import Subject, sample_texts


def verify_pairing(settings: Settings, *, corpus: Path, sae: Path, output: Path) -> Verification:
    """Checks model, SAE and tokenizer on `verify.tokens` tokens of corpus.parquet; `output` is verification.json.

    A number that is off is a finding, not an error: the file says so.
    """
    torch.set_num_threads(settings.sweep.threads)
    instrument, chat, fingerprint = load_instrument(
        settings, sae=sae, corpus_sha256=file_sha256(corpus), decoder=True
    )
    backend, sweep = instrument.backend, settings.sweep
    assert isinstance(backend, TorchBackend)
    published = settings.pairing.published
    subject = Subject(
        model=backend.model,
        backend=backend,
        chat=chat,
        sae=instrument.sae,
        texts=sample_texts(corpus_files.read(corpus), chat, tokens=settings.verify.tokens, bos=sweep.bos),
        window=sweep.window,
        batch=sweep.batch,
        bos=sweep.bos,
        outlier_norm=sweep.outlier_norm,
        published_l0=None if published is None else published.l0,
    )
    found = verify_subject(subject)
    if settings.quantization != "none":
        found = replace(found, quantization=_effect(settings, subject))
    write_verification(output, found, fingerprint)
    return found


def _effect(settings: Settings, subject: Subject) -> QuantizationEffect:
    source = SourcesLock(settings.results / "sources.lock.json").resolve(settings.pairing.model)
    model, tokenizer = load_model(source.path, device=settings.device, dtype=settings.pairing.dtype)
    backend = TorchBackend(model, tokenizer, settings.pairing.layer)
    return quantization_effect(subject, backend, settings.quantization)
