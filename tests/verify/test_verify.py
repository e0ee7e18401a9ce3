"""The self-test on the real model: all well as shipped, and each fault is found by the check that guards against it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from fakes.families import FAMILIES, save_family
from torch import Tensor

from neuroscope import settings, sources
from neuroscope.corpus import SCHEMA, document_id
from neuroscope.corpus.readers import read_files
from neuroscope.errors import ArtefactError
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.hooks import decoder_layers
from neuroscope.models.llamacpp import LlamaCppBackend
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder, load_sae
from neuroscope.verification import (
    BackendParity,
    Check,
    Fidelity,
    QuantizationEffect,
    Verification,
    read_verification,
    write_verification,
)
from neuroscope.verify import Subject, checks, verify_subject
from neuroscope.verify.checks import reference_acts
from neuroscope.verify.fidelity import fidelity, top_overlap
from neuroscope.verify.quantized import backend_parity, parity_check, quantization_effect
from neuroscope.verify.subject import sample_texts

TOKENS = 600


@pytest.fixture(scope="module")
def subject() -> Subject:
    """The embedded pairing on a few hundred tokens of two strata."""
    configured = settings.load("smollm2-135m")
    pairing = configured.pairing
    model, tokenizer = load_model(sources.resolve(pairing.model).path, device="cpu", dtype=pairing.dtype)
    chat = ChatTokenizer(tokenizer)
    leads = read_files(sources.resolve(configured.corpus.sources[0].source).path)
    talk = (
        Path(next(s.source for s in configured.corpus.sources if s.stratum == "chat"))
        .read_text()
        .splitlines()
    )
    rows = [
        ("encyclopedia", text) for _, text in zip(range(30), leads, strict=False) if isinstance(text, str)
    ]
    rows += [("chat", text) for text in talk[:10]]
    frame = pl.DataFrame(
        [(document_id(text), stratum, "test", text) for stratum, text in rows], schema=SCHEMA, orient="row"
    )
    assert pairing.published is not None
    return Subject(
        model=model,
        backend=TorchBackend(model, tokenizer, pairing.layer),
        chat=chat,
        sae=load_sae(sources.resolve(pairing.sae.uri).path, device="cpu"),
        texts=sample_texts(frame, chat, tokens=TOKENS, bos=True),
        published_l0=pairing.published.l0,
    )


def with_sae(subject: Subject, sae: SparseAutoencoder) -> Subject:
    """The same residuals, read by another SAE."""
    broken = replace(subject, sae=sae)
    broken.__dict__["residuals"] = subject.residuals
    return broken


def changed(sae: SparseAutoencoder, **weights: Any) -> SparseAutoencoder:
    other = copy.copy(sae)
    for name, value in weights.items():
        setattr(other, name, value)
    return other


class InclusiveGate(SparseAutoencoder):
    def encode(self, x: Tensor) -> Tensor:
        pre = x.float() @ self.W_enc + self.b_enc
        return torch.relu(pre) * (pre >= self.threshold)


class HalfPrecision(SparseAutoencoder):
    def encode(self, x: Tensor) -> Tensor:
        pre = x.bfloat16().float() @ self.W_enc.bfloat16().float() + self.b_enc
        return torch.relu(pre) * (pre > self.threshold)


class DoubleBos(ChatTokenizer):
    def render(self, messages: Any, *, generation: bool = True) -> Prompt:
        prompt = super().render(messages, generation=generation)
        assert self.bos_id is not None
        return Prompt([self.bos_id, self.bos_id, *prompt.ids], [False, False, *prompt.content])


def transposed(subject: Subject) -> Subject:
    """Rows taken for columns: the same numbers read in the wrong order, as a missing `.T` does."""
    sae = subject.sae
    return with_sae(subject, changed(sae, W_enc=sae.W_enc.T.reshape(sae.d_in, sae.d_sae).contiguous()))


def gate(subject: Subject) -> Subject:
    sae = copy.copy(subject.sae)
    sae.__class__ = InclusiveGate
    return with_sae(subject, sae)


def low_precision(subject: Subject) -> Subject:
    sae = copy.copy(subject.sae)
    sae.__class__ = HalfPrecision
    return with_sae(subject, sae)


def rms(subject: Subject) -> Subject:
    return with_sae(subject, changed(subject.sae, input_norm="rms"))


def another_model_s_sae(subject: Subject) -> Subject:
    """Of the right width, with every statistic of the real one but the model's own directions."""
    sae = subject.sae
    turned = torch.linalg.qr(torch.randn(sae.d_in, sae.d_in, generator=torch.Generator().manual_seed(0)))[0]
    assert sae.W_dec is not None
    assert sae.b_dec is not None
    return with_sae(
        subject,
        changed(sae, W_enc=turned @ sae.W_enc, W_dec=sae.W_dec @ turned.T, b_dec=sae.b_dec @ turned.T),
    )


def one_layer_off(subject: Subject) -> Subject:
    backend = TorchBackend(subject.model, subject.backend.tokenizer, subject.backend.layer - 1)
    backend.layer += 1  # what it says, not what it does
    backend.residuals = TorchBackend(  # type: ignore[method-assign]
        subject.model, subject.backend.tokenizer, subject.backend.layer - 1
    ).residuals
    broken = replace(subject, backend=backend)
    broken.__dict__["residuals"] = subject.residuals
    return broken


def double_bos(subject: Subject) -> Subject:
    broken = replace(subject, chat=DoubleBos(subject.chat.tokenizer))
    broken.__dict__["residuals"] = subject.residuals
    return broken


def stale_cache(subject: Subject) -> Subject:
    """A cache that forgets: every token is run as if it were the first."""
    backend = TorchBackend(subject.model, subject.backend.tokenizer, subject.backend.layer)
    forward = backend.forward

    def forgetful(ids: Any) -> Any:
        backend.rewind(0)
        return forward(ids)

    backend.forward = forgetful  # type: ignore[method-assign]
    broken = replace(subject, backend=backend)
    broken.__dict__["residuals"] = subject.residuals
    return broken


def test_the_embedded_pairing_is_right(subject: Subject) -> None:
    found = verify_subject(subject)
    assert found.off == ()
    assert found.verdict == "ok"
    measured = {check.name: check.measured for check in found.checks}
    assert set(measured) == {"encode", "weights", "hook", "cache", "bos", "l0", "fvu", "input_norm"}
    assert found.overall.tokens >= TOKENS * 0.9
    assert found.overall.fvu == pytest.approx(0.15, abs=0.07)
    assert found.input_norms["none"] == found.overall
    assert found.input_norms["rms"].fvu > 2 * found.overall.fvu
    assert set(found.strata) == {"chat", "encyclopedia"}


@pytest.mark.parametrize(
    ("break_it", "found_by"),
    [
        (transposed, {"weights"}),
        (gate, {"encode"}),
        (low_precision, {"encode"}),
        (rms, {"input_norm", "fvu"}),
        (another_model_s_sae, {"fvu", "l0"}),
        (one_layer_off, {"hook"}),
        (stale_cache, {"cache"}),
        (double_bos, {"bos"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_by_the_check_that_guards_against_it(
    subject: Subject, break_it: Callable[[Subject], Subject], found_by: set[str]
) -> None:
    found = verify_subject(break_it(subject))
    assert found_by <= set(found.off)
    if len(found_by) == 1 and break_it is not transposed:
        assert set(found.off) == found_by
    for check in found.checks:
        assert (
            check.verdict != "off"
            or "Usually" in check.sentence
            or "fires" in check.sentence
            or "set sae" in check.sentence
        )


def test_fvu_is_that_of_float64(subject: Subject) -> None:
    x = torch.cat(list(subject.residuals.values())).double()
    sae = subject.sae
    assert sae.W_dec is not None
    acts = reference_acts(sae, x @ sae.W_enc.double() + sae.b_enc.double())
    error = (x - acts @ sae.W_dec.double() - sae.b_dec.double()).square().sum()  # type: ignore[union-attr]
    expected = float(error / (x - x.mean(0)).square().sum())
    assert fidelity(sae, x.float()).fvu == pytest.approx(expected, rel=1e-3)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    from tiny_sweep import make_fingerprint

    report = Verification(
        (Check("encode", "ok", 1e-6, "<= 1e-4", "what"), Check("l0", "skipped", None, "none", "what")),
        Fidelity(10, 3.0, 0.2),
        {"code": Fidelity(5, 4.0, 0.1)},
        {"none": Fidelity(10, 3.0, 0.2)},
        ("careful",),
        QuantizationEffect("int8", Fidelity(10, 3.0, 0.1), 0.9),
        BackendParity("llamacpp", "q4_1", Fidelity(10, 3.0, 0.1), 0.999, 0.99, 0.95),
    )
    path = tmp_path / "verification.json"
    write_verification(path, report, make_fingerprint())
    assert read_verification(path) == (report, make_fingerprint())
    assert json.loads(path.read_text())["verdict"] == "ok"
    for content in ("", "[]", '{"checks": 3}', path.read_text()[:-40]):
        path.write_text(content)
        with pytest.raises(ArtefactError, match="Delete it, then make it anew with `neuroscope verify`"):
            read_verification(path)
    path.unlink()
    with pytest.raises(ArtefactError, match="is not there"):
        read_verification(path)


@pytest.mark.parametrize(("quantization", "least", "most"), [("int8", 0.95, 0.999), ("int4", 0.97, 0.9999)])
def test_what_quantisation_costs_is_measured(
    subject: Subject, quantization: str, least: float, most: float
) -> None:
    # Four bits lose little here: the file holds Q4_1 weights, whose groups of 32 are those of int4.
    pairing = settings.load("smollm2-135m").pairing
    model, tokenizer = load_model(
        sources.resolve(pairing.model).path, device="cpu", dtype=pairing.dtype, quantization=quantization
    )
    backend = TorchBackend(model, tokenizer, pairing.layer)
    effect = quantization_effect(
        replace(subject, model=model, backend=backend), subject.backend, quantization
    )
    assert effect.unquantized.fvu == pytest.approx(
        fidelity(subject.sae, torch.cat(list(subject.residuals.values()))).fvu, rel=0.02
    )
    assert least < effect.overlap < most
    print(quantization, effect)


def test_llama_cpp_is_compared_with_torch_on_the_same_weights_token_by_token(subject: Subject) -> None:
    """On the real quantised file: nearly the same residuals; on another layer's, a check that is off."""
    path = sources.resolve(settings.load("smollm2-135m").pairing.model).path
    llamacpp = LlamaCppBackend(path, subject.backend.layer)
    found = backend_parity(subject, llamacpp, subject.backend, "q4_1")
    print(found)
    assert found.cosine > 0.995
    assert 0.9 < found.least_cosine < found.cosine
    assert 0.8 < found.overlap < 1
    assert found.fidelity.tokens > 100
    assert parity_check(found).verdict == "ok"
    llamacpp.close()
    few = replace(subject, texts=dict(list(subject.texts.items())[:1]))
    other = backend_parity(few, LlamaCppBackend(path, 3), subject.backend, "q4_1")
    check = parity_check(other)
    assert (check.name, check.verdict) == ("backend", "off")
    assert "Usually a layer counted otherwise" in check.sentence


def test_overlap_is_counted_over_the_features_that_are_active() -> None:
    eye = torch.eye(4)
    sae = SparseAutoencoder(eye, torch.zeros(4), torch.zeros(4), eye, torch.zeros(4))
    x = torch.tensor([[4.0, 3.0, 0.0, 0.0], [1.0, 2.0, 3.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])
    other = torch.tensor([[4.0, 0.0, 3.0, 0.0], [0.0, 2.0, 3.0, 1.0], [9.0, 0.0, 0.0, 0.0]])
    assert top_overlap(sae, x, other, k=2) == pytest.approx((1 / 2 + 2 / 2) / 2)
    assert top_overlap(sae, x, x, k=3) == 1


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_hook_is_checked_at_the_first_and_at_the_last_layer_of_every_family(
    family: str, tmp_path: Path
) -> None:
    model, tokenizer = load_model(save_family(family, tmp_path), device="cpu", dtype="float32")
    last = len(decoder_layers(model)) - 1
    for layer in (0, last):
        right = Subject(model, TorchBackend(model, tokenizer, layer), None, None, {})  # type: ignore[arg-type]
        right.__dict__["windows"] = [list(range(10, 40))]
        assert checks.hook(right).verdict == "ok"
        other = TorchBackend(model, tokenizer, 1 if layer == 0 else 0)
        other.layer = layer
        wrong = replace(right, backend=other)
        wrong.__dict__["windows"] = right.windows
        wrong.backend.residuals = TorchBackend(model, tokenizer, last - layer).residuals  # type: ignore[method-assign]
        assert checks.hook(wrong).verdict == "off"


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_cached_decoding_of_packed_weights_is_judged_by_what_their_kernels_round_to(
    family: str, quantization: str, tmp_path: Path
) -> None:
    model, tokenizer = load_model(
        save_family(family, tmp_path), device="cpu", dtype="float32", quantization=quantization
    )
    packed = Subject(model, TorchBackend(model, tokenizer, 2), None, None, {})  # type: ignore[arg-type]
    packed.__dict__["windows"] = [list(range(10, 40))]
    found = checks.cache(packed)
    assert found.verdict == "ok"
    assert found.limit == "<= 0.05 relative (bfloat16)"
    stale = stale_cache(packed)
    stale.__dict__["windows"] = packed.windows
    assert checks.cache(stale).verdict == "off"
