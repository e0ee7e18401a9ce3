"""The cached forward pass and the hook, against one full forward pass without a cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fakes.tiny import CONTEXT, D_MODEL, LAYERS, VOCABULARY
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.models.hooks import decoder_layers, residual_at
from neuroscope.models.torch_backend import TorchBackend

Tiny = tuple[Any, Any]
LENGTH = 100  # past the tiny Gemma's sliding window of 40


@pytest.fixture(params=["tiny_gemma", "tiny_llama"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)[0]


def ids_of(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, VOCABULARY, (length,), generator=generator).tolist()


def layer_outputs(model: Any, ids: list[int]) -> list[Tensor]:
    """Oracle: the output [len(ids), d_model] of every decoder layer in one forward pass without a cache."""
    outputs: list[Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        outputs.append((output[0] if isinstance(output, tuple) else output)[0])

    handles = [layer.register_forward_hook(keep) for layer in model.model.layers]
    try:
        with torch.inference_mode():
            model(input_ids=torch.tensor([ids]), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


def full_logits(model: Any, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    return logits


@pytest.mark.parametrize("layer", range(LAYERS))
def test_hook_receives_correct_layer(model: Any, layer: int) -> None:
    """The hook at one of layers 0, 1, 2 is called exactly once in a forward pass, and gets that layer's output."""
    ids = ids_of(5)
    calls = []
    with residual_at(model, layer) as tap:
        handle = decoder_layers(model)[layer].register_forward_hook(lambda *_: calls.append(layer))
        with torch.inference_mode():
            model(input_ids=torch.tensor([ids]), use_cache=False)
        handle.remove()
        taken = tap.take()[0]
        with pytest.raises(ModelError, match=f"layer {layer} since the residual was last taken"):
            tap.take()
    outputs = layer_outputs(model, ids)
    assert calls == [layer]
    assert torch.equal(taken, outputs[layer])
    assert not any(torch.equal(taken, other) for other in outputs[:layer] + outputs[layer + 1 :])


def test_hook_tensor_shape(model: Any) -> None:
    """[seq_len, hidden_dim], hidden_dim being the model config's."""
    forward = TorchBackend(model, None, 1).forward(ids_of(7))
    assert model.config.hidden_size == D_MODEL
    assert forward.residual.shape == (7, model.config.hidden_size)
    assert forward.logits.shape == (VOCABULARY,)
    assert forward.logits.dtype == torch.float32


def test_noop_hook_is_zero_cost(model: Any) -> None:
    """Without a tap the model holds no hook and runs the same operations as before any tap was opened."""

    def hooks() -> int:
        return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())

    def operations() -> list[str]:
        cpu = torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[cpu]) as profile, torch.inference_mode():
            model(input_ids=torch.tensor([[5, 6, 7]]), use_cache=False)
        return [event.name for event in profile.events()]

    operations()  # the first pass may allocate what later ones reuse
    before, plain = hooks(), operations()
    TorchBackend(model, None, 1).forward(ids_of(3))
    with residual_at(model, 1):
        assert hooks() == before + 1
    assert hooks() == before
    assert operations() == plain


def test_cached_passes_give_the_residuals_of_one_full_pass(model: Any) -> None:
    ids = ids_of(LENGTH)
    backend = TorchBackend(model, None, 1)
    passes = [backend.forward(ids[:64]), backend.forward(ids[64:71])]
    passes += [backend.forward([token]) for token in ids[71:]]
    residual = torch.cat([forward.residual for forward in passes])
    torch.testing.assert_close(residual, layer_outputs(model, ids)[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(passes[-1].logits, full_logits(model, ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kept", [1, 39, 64, 99])
def test_a_cache_rewinds_to_any_position_and_goes_on_from_there(model: Any, kept: int) -> None:
    first, second = ids_of(LENGTH), ids_of(30, seed=1)
    backend = TorchBackend(model, None, 1)
    backend.forward(first)
    assert backend.rewind(kept) == kept
    residual = backend.forward(second).residual
    expected = layer_outputs(model, first[:kept] + second)[1][kept:]
    torch.testing.assert_close(residual, expected, rtol=1e-4, atol=1e-4)


def test_logits_of_a_whole_prompt_are_those_of_one_pass_and_leave_the_cache_alone(model: Any) -> None:
    ids, others = ids_of(LENGTH), ids_of(150, seed=1)
    backend = TorchBackend(model, None, 1)
    backend.forward(ids[:-1])
    logits = torch.cat(list(backend.prompt_logits(others)))
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([others]), use_cache=False).logits[0].float()
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        backend.forward(ids[-1:]).logits, full_logits(model, ids), rtol=1e-4, atol=1e-4
    )


def test_a_cache_grows_past_its_first_capacity(model: Any) -> None:
    ids = ids_of(300)
    backend = TorchBackend(model, None, 2)
    residual = torch.cat([backend.forward(ids[start : start + 60]).residual for start in range(0, 300, 60)])
    torch.testing.assert_close(residual, layer_outputs(model, ids)[2], rtol=1e-4, atol=1e-4)


def test_rewinding_to_nothing_starts_anew(model: Any) -> None:
    backend = TorchBackend(model, None, 1)
    first = backend.forward(ids_of(10))
    assert backend.rewind(0) == 0
    assert torch.equal(backend.forward(ids_of(10)).residual, first.residual)
    assert backend.rewind(50) == 10


def test_a_cache_that_cannot_be_cut_is_emptied(model: Any) -> None:
    """As for recurrent models, whose state has no positions."""
    from transformers.cache_utils import DynamicCache

    backend = TorchBackend(model, None, 1)
    backend._cache = DynamicCache(config=model.config)
    first = backend.forward(ids_of(60))
    assert backend.rewind(30) == 0
    assert torch.equal(backend.forward(ids_of(60)).residual, first.residual)


def test_a_batch_gives_each_row_what_it_gets_alone(model: Any) -> None:
    lengths = [50, 7, 1]
    ids = torch.zeros(3, 50, dtype=torch.long)
    mask = torch.zeros(3, 50, dtype=torch.bool)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.tensor(ids_of(length, seed=row))
        mask[row, :length] = True
    residuals = TorchBackend(model, None, 1).residuals(ids, mask)
    assert residuals.shape == (3, 50, D_MODEL)
    for row, length in enumerate(lengths):
        expected = layer_outputs(model, ids_of(length, seed=row))[1]
        torch.testing.assert_close(residuals[row, :length], expected, rtol=1e-4, atol=1e-4)
        assert not residuals[row, length:].any()


def test_a_batch_runs_no_layer_after_the_hooked_one(model: Any) -> None:
    ran = []
    handles = [
        layer.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
        for index, layer in enumerate(model.model.layers)
    ]
    ids = torch.tensor([ids_of(4)])
    TorchBackend(model, None, 1).residuals(ids, torch.ones_like(ids, dtype=torch.bool))
    for handle in handles:
        handle.remove()
    assert ran == [0, 1]


def test_padding_on_the_left_is_refused(model: Any) -> None:
    mask = torch.tensor([[False, True, True]])
    with pytest.raises(ModelError, match="not padded on the right"):
        TorchBackend(model, None, 1).residuals(torch.zeros(1, 3, dtype=torch.long), mask)


def test_what_cannot_run_is_refused_with_its_numbers(model: Any) -> None:
    with pytest.raises(ModelError, match="layers 0 to 2"):
        TorchBackend(model, None, 3)
    backend = TorchBackend(model, None, 1)
    assert backend.context_length == CONTEXT
    backend.forward(ids_of(CONTEXT - 1))
    with pytest.raises(ModelError, match=r"2 tokens after 511 cannot run: the context is 512"):
        backend.forward([5, 6])
    with pytest.raises(ModelError, match="0 tokens"):
        backend.forward([])
