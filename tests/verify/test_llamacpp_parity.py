"""`neuroscope verify` with the backend llamacpp: what it adds to the report, on a tiny file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.gguf_files import write_gguf

from neuroscope import native, settings
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep.windows import tokenize
from neuroscope.verification import Fidelity, Verification
from neuroscope.verify.stage import with_llamacpp
from neuroscope.verify.subject import Subject

LAYER = 1


@pytest.mark.parametrize(("quantization", "least"), [("none", 0.9999), ("q8_0", 0.99)])
def test_the_report_compares_with_the_same_weights_and_with_the_unquantised_ones(
    quantization: str,
    least: float,
    tiny_llama: tuple[Any, Any],
    tiny_sae: SparseAutoencoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "cache_dir", lambda: tmp_path / "cache")
    for module in ("llamacpp_file", "llamacpp_trial", "loading"):
        monkeypatch.setattr(f"neuroscope.models.{module}.cache_dir", lambda: tmp_path / "cache")
    native.compiled.cache_clear()
    path = write_gguf(tmp_path / "tiny.gguf", *tiny_llama)
    model, tokenizer = load_model(path, device="cpu", dtype="float32")
    chat = ChatTokenizer(tokenizer)
    texts = {
        "code": tokenize(chat, "code", ["the user said hello and the model said goodbye " * 8], bos=True)
    }
    subject = Subject(model, TorchBackend(model, tokenizer, LAYER), chat, tiny_sae, texts, window=64, batch=2)
    overrides = {"backend": "llamacpp", "quantization": quantization, "device": "cpu"}
    chosen = settings.load("smollm2-135m", overrides=overrides)
    pairing = replace(chosen.pairing, model=str(path), layer=LAYER, dtype="float32")
    before = Verification((), Fidelity(1, 1.0, 0.1), {}, {})
    found = with_llamacpp(before, replace(chosen, pairing=pairing, results=tmp_path / "results"), subject)
    assert found.parity is not None
    assert found.parity.numbers == ("gguf" if quantization == "none" else "q8_0")
    assert least < found.parity.least_cosine <= found.parity.cosine
    assert found.quantization is not None
    assert found.quantization.quantization == chosen.arithmetic
    assert 0.8 < found.quantization.overlap <= 1
    assert [(check.name, check.verdict) for check in found.checks] == [("backend", "ok")]
    native.compiled.cache_clear()
