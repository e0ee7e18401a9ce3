"""A corpus that is small enough to sweep in a second, and all that reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from fakes.tiny import D_MODEL, D_SAE, TINY_LAYER

from neuroscope import settings as neuroscope_settings
from neuroscope.corpus import SCHEMA, document_id
from neuroscope.manifest import Fingerprint
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import load_sae
from neuroscope.sweep.activations import Instrument

TEXT = "the cat sat on a mat while rain fell over Paris and def main return x poets sang of 1 2 3"
WORDS = TEXT.split()


def make_fingerprint(**changes: Any) -> Fingerprint:
    fields = {
        "model": "tiny",
        "model_revision": None,
        "tokenizer_sha256": "0" * 64,
        "sae": "tiny",
        "sae_sha256": "1" * 64,
        "layer": TINY_LAYER,
        "d_in": D_MODEL,
        "d_sae": D_SAE,
    }
    return Fingerprint(**{**fields, **changes})


def make_documents(count: int = 30, seed: int = 0) -> pl.DataFrame:
    """`count` documents of each stratum, 1 to 150 characters long, conversations among them."""
    generator = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(generator.choice(WORDS, generator.integers(1, 30)))

    rows = []
    for number in range(count):
        rows += [(stratum, f"{text()} {number}") for stratum in ("encyclopedia", "code")]
        turns = [{"role": "user", "content": text()}, {"role": "assistant", "content": f"{text()} {number}"}]
        rows.append(("chat", json.dumps(turns)))
    records = [(document_id(text), stratum, "made up", text) for stratum, text in rows]
    return pl.DataFrame(records, schema=SCHEMA, orient="row").unique("doc_id").sort("doc_id")


@dataclass
class TinySweep:
    """A tiny model and SAE on disk, loaded when they are asked for."""

    model_path: Path
    sae_path: Path

    @cached_property
    def documents(self) -> pl.DataFrame:
        return make_documents()

    @cached_property
    def instrument(self) -> Instrument:
        model, tokenizer = load_model(self.model_path, device="cpu", dtype="float32")
        backend = TorchBackend(model, tokenizer, TINY_LAYER)
        return Instrument(backend, load_sae(self.sae_path, device="cpu"), self.chat.bos_id)

    @cached_property
    def tokenizer(self) -> Any:
        return load_model(self.model_path, device="cpu", dtype="float32")[1]

    @cached_property
    def chat(self) -> ChatTokenizer:
        return ChatTokenizer(self.tokenizer)

    def settings(self, results: Path, **overrides: Any) -> neuroscope_settings.Settings:
        """Settings of a pairing made of the model and the SAE."""
        small = {
            "model": str(self.model_path),
            "layer": TINY_LAYER,
            "dtype": "float32",
            "device": "cpu",
            "sae.source": str(self.sae_path),
            "sae.width": D_SAE,
            "results": f"{results}/{{pairing}}",
            "examples.samples": 80,
            "examples.per_feature": 5,
            "examples.held_out": 6,
            "examples.pool": 40,
            "sweep.window": 32,
            "sweep.batch": 4,
            "sweep.chunk_documents": 8,
            "sweep.threads": 1,
        }
        return neuroscope_settings.load("smollm2-135m", overrides={**small, **overrides})
