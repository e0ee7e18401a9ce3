"""The pipeline's call: the pairing as the settings name it, verified on its corpus."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch

from neuroscope import corpus as corpus_files
from neuroscope.imported import read_examples
from neuroscope.manifest import SourcesLock
from neuroscope.models.llamacpp import LlamaCppBackend
from neuroscope.models.loading import load_model
from neuroscope.models.opening import open_backend
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.settings import Pairing, Settings
from neuroscope.sources import file_sha256
from neuroscope.sweep.instrument import load_instrument
from neuroscope.verification import QuantizationEffect, Verification, write_verification
from neuroscope.verify.published import Published
from neuroscope.verify.quantized import backend_parity, parity_check, quantization_effect
from neuroscope.verify.report import verify_subject
from neuroscope.verify.subject import Subject, sample_texts


def verify_pairing(
    settings: Settings, *, corpus: Path, sae: Path, output: Path, examples: Path | None = None
) -> Verification:
    """Checks model, SAE and tokenizer on `verify.tokens` tokens of corpus.parquet; `output` is verification.json.

    `examples` are those imported from Neuronpedia, where there are any. A number that is off is a finding, not an
    error: the file says so.
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
    found = verify_subject(subject, None if examples is None else _published(settings.pairing, examples))
    if settings.backend == "llamacpp":
        found = with_llamacpp(found, settings, subject)
    elif settings.quantization != "none":
        found = replace(found, quantization=_effect(settings, subject))
    write_verification(output, found, fingerprint)
    return found


def _published(pairing: Pairing, path: Path) -> Published | None:
    names = pairing.neuronpedia
    examples = read_examples(path, names)
    if names is None or examples is None:
        return None
    return Published(examples, names.model_id, _same_model(pairing.model, names.model_id))


def _same_model(source: str, model_id: str) -> bool:
    """By their names, where the source is a repository of the hub; a file's name tells nothing."""
    kind, _, rest = source.partition("://")
    repository = rest.partition("@")[0].rpartition("/")[2]
    return kind != "hf" or _plain(repository) == _plain(model_id)


def _plain(model: str) -> str:
    """llama318bit of Llama-3.1-8B-Instruct and of llama3.1-8b-it."""
    return re.sub("[^a-z0-9]", "", model.lower().replace("instruct", "it"))


def _effect(settings: Settings, subject: Subject) -> QuantizationEffect:
    source = SourcesLock(settings.results / "sources.lock.json").resolve(settings.pairing.model)
    model, tokenizer = load_model(source.path, device=settings.device, dtype=settings.pairing.dtype)
    backend = TorchBackend(model, tokenizer, settings.pairing.layer)
    return quantization_effect(subject, backend, settings.quantization)


def with_llamacpp(found: Verification, settings: Settings, subject: Subject) -> Verification:
    """`found`, which is torch's, with what llama.cpp makes of the file that it is given."""
    pairing = settings.pairing
    source = SourcesLock(settings.results / "sources.lock.json").resolve(pairing.model)
    opened = open_backend(
        source.path,
        pairing.layer,
        backend=settings.backend,
        device=settings.device,
        dtype=pairing.dtype,
        quantization=settings.quantization,
    )
    llamacpp = opened.backend
    assert isinstance(llamacpp, LlamaCppBackend)
    same = subject.backend
    if llamacpp.path != source.path:
        model, tokenizer = load_model(llamacpp.path, device=settings.device, dtype=pairing.dtype)
        same = TorchBackend(model, tokenizer, pairing.layer)
    parity = backend_parity(subject, llamacpp, same, opened.numbers)
    return replace(
        found,
        checks=(*found.checks, parity_check(parity)),
        quantization=quantization_effect(subject, subject.backend, settings.arithmetic, by=llamacpp),
        parity=parity,
    )
