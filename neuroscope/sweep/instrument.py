"""Loads what a sweep measures with: the pairing's model, its SAE, its tokenizer, and their fingerprint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from neuroscope.errors import ArtefactError, ModelError, made_anew
from neuroscope.identity import fingerprint_of
from neuroscope.manifest import Fingerprint, SourcesLock, library_versions
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.pairing_sae import load_pairing_sae
from neuroscope.settings import Settings
from neuroscope.sweep.activations import Instrument
from neuroscope.sweep.windows import batch_shape


def load_instrument(
    settings: Settings, *, sae: Path, corpus_sha256: str | None, decoder: bool = False
) -> tuple[Instrument, ChatTokenizer, Fingerprint]:
    """Model, SAE and tokenizer of the settings' pairing, and the fingerprint of what they make.

    Raises ModelError when the SAE's input is not as wide as the model's residual stream.
    """
    pairing = settings.pairing
    source = SourcesLock(settings.results / "sources.lock.json").resolve(pairing.model)
    model, tokenizer = load_model(
        source.path, device=settings.device, dtype=pairing.dtype, quantization=settings.torch_quantization
    )
    backend = TorchBackend(model, tokenizer, pairing.layer)
    weights = _sae_file(sae)
    autoencoder = load_pairing_sae(pairing, weights, device=str(backend.device), decoder=decoder)
    if autoencoder.d_in != backend.d_model:
        raise ModelError(
            f"The SAE at {weights} reads {autoencoder.d_in} dimensions, the residual stream of "
            f"{pairing.model} has {backend.d_model}. Choose an SAE trained on this model (`neuroscope sae list`)."
        )
    chat = ChatTokenizer(tokenizer)
    shape = batch_shape(backend.device.type, settings.sweep.threads)
    instrument = Instrument(backend, autoencoder, chat.bos_id if settings.sweep.bos else None, shape)
    fingerprint = fingerprint_of(
        pairing,
        model=source,
        tokenizer=tokenizer,
        sae=autoencoder,
        sae_file=weights,
        corpus_sha256=corpus_sha256,
        sweep=_conditions(settings, model),
    )
    return instrument, chat, fingerprint


def _sae_file(path: Path) -> Path:
    """The SAE's weights: `path` itself, or the `path` that a provenance.json names."""
    if path.suffix != ".json":
        return path
    try:
        return Path(json.loads(path.read_text(encoding="utf-8"))["path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = made_anew("snakemake --cores 4 sae")
        raise ArtefactError(f"{path} does not say where the SAE is ({error}). {remedy}") from error


def _conditions(settings: Settings, model: Any) -> dict[str, Any]:
    """Everything besides model, SAE and text that float results depend on."""
    return {
        "window": settings.sweep.window,
        "batch": settings.sweep.batch,
        "bos": settings.sweep.bos,
        "threads": settings.sweep.threads,
        "outlier_norm": settings.sweep.outlier_norm,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "quantization": settings.torch_quantization,
        **library_versions(),
    }
