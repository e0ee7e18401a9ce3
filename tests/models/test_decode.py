"""The lean decode step against the model's own forward pass, and when it is left alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.families import CONTEXT, FAMILIES, VOCABULARY, WINDOW, save_family
from fakes.steps import Load, assert_the_same, distance, ids_of, loading
from torch import Tensor, nn

from neuroscope import settings, sources
from neuroscope.errors import ModelError
from neuroscope.models import decode, kernels
from neuroscope.models.hooks import decoder, residual_at
from neuroscope.models.loading import load_model
from neuroscope.models.packed import rounds_to
from neuroscope.models.quantization import pack_linear_layers
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import load_sae

TOLERANCE = {"float32": 2e-5, "bfloat16": 0.16}
"""Largest distance of two ways, as a share of the length: roundings only, of all positions before in bfloat16, which
weights ten times a trained model's enlarge. A mistake in a mask or a position costs 0.3 and more.
"""
LAYER = 2

families = pytest.mark.parametrize("name", FAMILIES)
dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small, and processes that share the processors, run best so; SmolLM2 ten times as fast."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    return loading(tmp_path_factory)


def both(model: Any) -> tuple[TorchBackend, TorchBackend]:
    """The model decoded by the lean step, and by its own pass."""
    return tuple(TorchBackend(model, None, LAYER, decode=mode) for mode in ("lean", "model"))  # type: ignore[return-value]


@dtypes
@families
def test_a_lean_step_is_the_models_own_pass(load: Load, name: str, dtype: str) -> None:
    """From the first token past every window, behind a prefill, and behind positions cut off and put back."""
    lean, own = both(load(name, dtype))
    assert_the_same(lean, own, ids_of(WINDOW + 8), TOLERANCE[dtype])
    for backend in (lean, own):
        backend.forward(ids_of(64, seed=1))
    assert_the_same(lean, own, ids_of(4, seed=2), TOLERANCE[dtype])
    for backend in (lean, own):
        saved = backend.take(0, WINDOW + 4)
        assert backend.rewind(0) == 0
        backend.restore([saved])
    assert_the_same(lean, own, ids_of(8, seed=3), TOLERANCE[dtype])


def test_a_cap_on_scores_that_gemma_3_names_and_does_not_use_is_not_used(tmp_path: Path) -> None:
    """In bfloat16 what a cap changes of a few tokens is no more than rounding may be."""
    folder = save_family("gemma3", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attn_logit_softcapping": 2.0}))
    model = load_model(folder, device="cpu", dtype="float32")[0]
    assert decoder(model).layers[0].self_attn.attn_logit_softcapping == 2.0
    lean, own = both(model)
    assert_the_same(lean, own, ids_of(WINDOW + 8), TOLERANCE["float32"])


@families
def test_in_bfloat16_a_lean_step_is_as_near_to_the_truth_as_the_models_own_pass(
    load: Load, name: str
) -> None:
    """The truth: the same weights, all else in float32."""
    model = load(name, "bfloat16")
    lean, own = both(model)
    truth = TorchBackend(copy.deepcopy(model).float(), None, LAYER, decode="model")
    apart = {"lean": 0.0, "own": 0.0}
    for token in ids_of(WINDOW + 8):
        true = truth.forward([token]).residual
        for way, backend in (("lean", lean), ("own", own)):
            apart[way] += distance(backend.forward([token]).residual.float(), true)
    assert 0 < apart["lean"] < 1.4 * apart["own"]


@pytest.mark.parametrize("name", ["gemma2", "gpt_neox"])
def test_a_lean_step_has_the_same_bits_wherever_the_positions_before_it_came_from(
    load: Load, name: str
) -> None:
    model = load(name)
    fresh, used = (TorchBackend(model, None, LAYER, decode="lean") for _ in range(2))
    fresh.forward(ids_of(40))
    expected = [fresh.forward([token]) for token in ids_of(6, seed=1)]
    used.forward(ids_of(40))
    saved = used.take(0, 40)
    used.forward(ids_of(CONTEXT - 40, seed=2))  # the cache has grown
    used.rewind(0)
    assert saved is not None
    used.restore([saved])
    for token, wanted in zip(ids_of(6, seed=1), expected, strict=True):
        found = used.forward([token])
        assert torch.equal(found.residual, wanted.residual)
        assert torch.equal(found.logits, wanted.logits)


@pytest.mark.parametrize("kernel", kernels.kernels(torch.device("cpu"), torch.float32))
def test_every_kernel_multiplies(monkeypatch: pytest.MonkeyPatch, kernel: kernels.Kernel) -> None:
    monkeypatch.setattr(kernels, "SMALL", 0)
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1, 96, generator=generator), torch.randn(40, 96, generator=generator)
    before = torch.backends.mkldnn.enabled
    for bias in (None, torch.randn(40, generator=generator)):
        expected = weight.double() @ x[0].double() + (0 if bias is None else bias.double())
        with torch.inference_mode(), kernel.active():
            assert distance(kernel.product(x, weight, bias)[0].double(), expected) < 1e-6
    assert torch.backends.mkldnn.enabled == before


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_layers_of_one_input_lie_together_and_the_model_is_the_same(
    tmp_path: Path, quantization: str
) -> None:
    model, _ = load_model(
        save_family("llama", tmp_path), device="cpu", dtype="float32", quantization=quantization
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert TorchBackend(model, None, LAYER, decode="lean").decode.step is not None
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for layer in decoder(model).layers:
        attention, mlp = layer.self_attn, layer.mlp
        for group in ([attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj]):
            held = [part.weight if quantization == "none" else part.packed for part in group]
            assert len({each.untyped_storage().data_ptr() for each in held}) == 1


class Doubled(nn.Module):
    """Another's linear layer: no `weight` of its own."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.halved = nn.Parameter(linear.weight.detach() / 2, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * (x @ self.halved.T)


def test_a_linear_layer_of_another_kind_is_called_as_the_module_it_is(load: Load) -> None:
    model = load("llama")
    for layer in decoder(model).layers:
        for owner, names in ((layer.self_attn, ["q_proj", "o_proj"]), (layer.mlp, ["up_proj", "down_proj"])):
            for name in names:
                setattr(owner, name, Doubled(getattr(owner, name)))
    lean, own = both(model)
    assert lean.decode.step is not None
    assert_the_same(lean, own, ids_of(5), TOLERANCE["float32"])


def test_a_step_that_gives_other_numbers_is_not_used(load: Load) -> None:
    """A family that changed under its name: here a layer that scales its attention otherwise than it says."""
    model = load("llama")
    for layer in decoder(model).layers:
        layer.self_attn.scaling *= 3
        layer.self_attn.register_buffer("unused", torch.zeros(1))
        own_forward = layer.mlp.forward
        layer.mlp.forward = lambda x, own_forward=own_forward: -own_forward(x)
    backend = TorchBackend(model, None, LAYER)
    assert backend.decode.step is None
    assert "gives other numbers" in str(backend.decode)
    own = TorchBackend(model, None, LAYER, decode="model")
    for token in ids_of(3):
        assert torch.equal(backend.forward([token]).logits, own.forward([token]).logits)
    with pytest.raises(
        ModelError, match=r"decode lean cannot be used with this model: .* Set decode to auto"
    ):
        _ = TorchBackend(model, None, LAYER, decode="lean").decode


def test_packed_weights_may_differ_by_what_their_kernels_round(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is to bfloat16, also where the rest of the model is float32."""
    monkeypatch.setattr(decode, "TOLERANCE", {torch.float32: -1.0, torch.bfloat16: 0.1})
    packed, plain = load("llama"), load("llama")
    pack_linear_layers(packed, 8, torch.device("cpu"))
    assert rounds_to(packed) == torch.bfloat16, "no kernel for int8 on this machine"
    assert TorchBackend(packed, None, LAYER).decode.step is not None
    assert TorchBackend(plain, None, LAYER).decode.step is None


def test_a_step_that_fails_is_not_used(load: Load) -> None:
    """Here on a linear layer that wants the batch the model's own pass gives it."""

    class Batched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if x.dim() != 3:
                raise RuntimeError("not a batch")
            return super().forward(x)

    model = load("llama")
    decoder(model).layers[1].mlp.up_proj.__class__ = Batched
    backend = TorchBackend(model, None, LAYER)
    assert str(backend.decode) == "model (the lean step fails: not a batch)"
    assert backend.forward([20]).logits.shape == (VOCABULARY,)


def test_layers_of_an_unknown_class_are_left_to_the_model(load: Load) -> None:
    model = load("llama")
    layers = decoder(model).layers
    layers[1].__class__ = type("SparseDecoderLayer", (type(layers[1]),), {})
    assert "class SparseDecoderLayer are not known" in str(TorchBackend(model, None, LAYER).decode)


def test_a_hook_placed_later_is_obeyed(load: Load) -> None:
    """Whoever steers a layer gets the steered residual."""
    model = load("llama")
    backend = TorchBackend(model, None, LAYER, decode="lean")
    plain = backend.forward([20]).residual
    backend.rewind(0)
    with residual_at(model, 1) as tap:
        assert distance(backend.forward([20]).residual, plain) < TOLERANCE["float32"]
        assert tap.take().shape == (1, 1, 32)


def test_the_first_kernel_that_gives_the_models_numbers_is_used_whatever_others_would_do(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise RuntimeError("no such instruction")

    def not_reached(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise AssertionError("a kernel was tried though one before it agreed")

    ways = [
        kernels.Kernel("wrong", lambda x, weight, bias: 2 * nn.functional.linear(x, weight, bias)),
        kernels.Kernel("failing", fails),
        kernels.Kernel("right"),
        kernels.Kernel("later", not_reached),
    ]
    monkeypatch.setattr(decode, "kernels", lambda device, dtype: ways)
    assert TorchBackend(load("llama"), None, LAYER).decode.way == "lean, right"
    del ways[2:]
    chosen = TorchBackend(load("llama"), None, LAYER).decode
    assert chosen.way == "model"
    assert chosen.why.startswith("the lean step gives other numbers")


def test_a_mode_that_is_not_known_is_refused(load: Load) -> None:
    with pytest.raises(ModelError, match=r"decode 'fast' is not known\. Use auto, graph, lean, model"):
        _ = TorchBackend(load("llama"), None, LAYER, decode="fast").decode


def test_the_embedded_model_answers_alike_with_the_same_features() -> None:
    """Greedy tokens identical; features too, but for those whose value is within 0.01 of their threshold."""
    configured = settings.load("smollm2-135m")
    pairing = configured.pairing
    model, tokenizer = load_model(sources.resolve(pairing.model).path, device="cpu", dtype="float32")
    sae = load_sae(sources.resolve(pairing.sae.uri).path, device="cpu")
    answers = []
    for mode in ("lean", "model"):
        backend = TorchBackend(model, tokenizer, pairing.layer, decode=mode)
        forward = backend.forward(tokenizer("The history of the city of Paris begins with").input_ids)
        ids, pre = [], []
        for _ in range(12):
            ids.append(int(forward.logits.argmax()))
            forward = backend.forward(ids[-1:])
            pre.append(forward.residual.float() @ sae.W_enc + sae.b_enc - sae.threshold)
        answers.append((ids, torch.cat(pre)))
    (ids, lean), (expected_ids, own) = answers
    assert ids == expected_ids
    clear = own.abs() > 0.01
    assert torch.equal((lean > 0)[clear], (own > 0)[clear])
    assert clear.double().mean() > 0.99
