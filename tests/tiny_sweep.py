"""A model, an SAE and a corpus that are small enough to sweep in a second, on disk and in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from neuroscope import settings as neuroscope_settings
from neuroscope.corpus import SCHEMA, document_id
from neuroscope.manifest import Fingerprint
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep.activations import Instrument

D_MODEL, D_SAE, LAYER = 32, 64, 1
TEXT = "the cat sat on a mat while rain fell over Paris and def main return x poets sang of 1 2 3"
WORDS = TEXT.split()
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
)
SPECIALS = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, six special tokens before them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=SPECIALS[2:],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=D_MODEL,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.4,
        bos_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def make_sae(seed: int = 0) -> SparseAutoencoder:
    """Random directions; thresholds that let a few of 64 features fire on a token."""
    generator = torch.Generator().manual_seed(seed)
    W_enc = torch.nn.functional.normalize(torch.randn(D_MODEL, D_SAE, generator=generator), dim=0)
    threshold = 1.0 + 4.0 * torch.rand(D_SAE, generator=generator)
    return SparseAutoencoder(W_enc, torch.zeros(D_SAE), threshold, W_enc.T.contiguous(), torch.zeros(D_MODEL))


def make_fingerprint(**changes: Any) -> Fingerprint:
    fields = {
        "model": "tiny",
        "model_revision": None,
        "tokenizer_sha256": "0" * 64,
        "sae": "tiny",
        "sae_sha256": "1" * 64,
        "layer": LAYER,
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
    """Everything a sweep reads, in `folder`."""

    folder: Path

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return make_tokenizer()

    @cached_property
    def chat(self) -> ChatTokenizer:
        return ChatTokenizer(self.tokenizer)

    @cached_property
    def documents(self) -> pl.DataFrame:
        return make_documents()

    @cached_property
    def instrument(self) -> Instrument:
        backend = TorchBackend(make_model(len(self.tokenizer)), self.tokenizer, LAYER)
        return Instrument(backend, make_sae(), self.chat.bos_id)

    def write(self) -> TinySweep:
        """Model, SAE and corpus as files."""
        make_model(len(self.tokenizer)).save_pretrained(self.folder / "model")
        self.tokenizer.save_pretrained(self.folder / "model")
        sae = make_sae()
        names = ("W_enc", "b_enc", "threshold", "W_dec", "b_dec")
        np.savez(self.folder / "params.npz", **{name: getattr(sae, name).numpy() for name in names})
        self.documents.write_parquet(self.folder / "corpus.parquet")
        return self

    def settings(self, results: Path, **overrides: Any) -> neuroscope_settings.Settings:
        """Settings of a pairing whose model and SAE are the files of `write`."""
        small = {
            "model": str(self.folder / "model"),
            "layer": LAYER,
            "dtype": "float32",
            "device": "cpu",
            "sae.source": str(self.folder / "params.npz"),
            "sae.width": D_SAE,
            "results": f"{results}/{{pairing}}",
            "examples.samples": 80,
            "examples.per_feature": 5,
            "examples.held_out": 6,
            "examples.pool": 40,
            "sweep.window": 48,
            "sweep.batch": 4,
            "sweep.chunk_documents": 8,
            "sweep.threads": 1,
        }
        return neuroscope_settings.load("smollm2-135m", overrides={**small, **overrides})
