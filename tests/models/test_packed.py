"""Packed linear layers against float64 products of the same quantised weights, by every kernel and without one."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.families import FAMILIES, save_family
from torch import Tensor, nn

from neuroscope.errors import ModelError
from neuroscope.models import packed
from neuroscope.models.loading import load_model
from neuroscope.models.packed import PackedLinear, SideBySide
from neuroscope.models.packed_kernels import KERNELS, PLAIN
from neuroscope.models.quantization import bits_of, pack_linear_layers
from neuroscope.models.rounding import INT4_GROUP, rounded

BITS = pytest.mark.parametrize("bits", [8, 4])
CPU = torch.device("cpu")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def packed_layer(outputs: int, inputs: int, bits: int, *, bias: bool = False, seed: int = 0) -> PackedLinear:
    return PackedLinear.pack(random(outputs, inputs, seed=seed), random(outputs) if bias else None, bits)


def difference(got: Tensor, wanted: Tensor) -> float:
    """Relative to all that is wanted."""
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def test_8_bits_are_whole_steps_of_the_largest_weight_of_a_row() -> None:
    weights = rounded(torch.tensor([[127.0, -64.0, 1.2, 0.0], [0.0, 0.0, 0.0, 0.0]]), 8)
    assert weights.values.tolist() == [[127, -64, 1, 0], [0, 0, 0, 0]]
    assert weights.scales.tolist() == [[1.0], [1.0]]


def test_4_bits_give_back_what_had_16_levels_in_every_group() -> None:
    levels = torch.arange(64).remainder(16).reshape(2, 32)
    weight = levels * torch.tensor([[0.5], [0.25]]) + torch.tensor([[-3.0], [1.0]])
    assert torch.equal(rounded(weight, 4).dequantised(torch.float32), weight)


def test_4_bits_lose_less_than_the_range_of_each_group_cut_in_16_levels() -> None:
    weight = random(256, 320)
    groups = weight.view(256, -1, INT4_GROUP)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    step = (high - low) / 15
    plain = (((groups - low) / step).round() * step + low).view_as(weight)
    error = difference(rounded(weight, 4).dequantised(torch.float32), weight)
    assert error < 0.96 * difference(plain, weight)


@pytest.mark.parametrize("alike", [1.0, -0.37, 0.02, 0.003, 1e-4])
@pytest.mark.parametrize("inputs", [32, 33])
def test_weights_that_are_all_alike_keep_the_digits_of_bfloat16(alike: float, inputs: int) -> None:
    """Also one weight by itself behind the last whole group."""
    weight = torch.full((3, inputs), alike)
    weight[1, :32] = torch.linspace(-1, 1, 32)
    found = rounded(weight, 4).dequantised(torch.float32)
    torch.testing.assert_close(found[[0, 2]], weight[[0, 2]], rtol=2**-8, atol=0)
    torch.testing.assert_close(found[1, 32:], weight[1, 32:], rtol=2**-8, atol=0)


@BITS
@pytest.mark.parametrize("inputs", [32, 40, 7])
def test_a_weight_that_is_not_a_number_spoils_its_group_and_no_other(bits: int, inputs: int) -> None:
    weight = random(16, inputs)
    weight[3, 2] = torch.nan
    weight[5] = 2.0
    weight[6] = 0.0
    layer = PackedLinear.pack(weight, None, bits)
    for rows in (1, 500):
        out = layer(torch.ones(rows, inputs))
        assert out.isnan().any(0).tolist() == [row == 3 for row in range(16)]
        torch.testing.assert_close(
            out[:, 5:7], torch.tensor([[2.0 * inputs, 0.0]]).expand(rows, 2), rtol=0.01, atol=0
        )


@BITS
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(64, 64), (192, 576), (16, 32), (48, 128), (40, 96), (33, 48), (1, 7), (320, 32)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_shape_and_number_of_rows_gives_the_product_of_the_rounded_weights(
    outputs: int, inputs: int, bits: int, dtype: torch.dtype
) -> None:
    layer = packed_layer(outputs, inputs, bits, bias=True)
    assert layer.bias is not None
    weight = rounded(random(outputs, inputs), bits).dequantised(torch.float64)
    assert difference(layer.weight, weight) < 0.004
    layer.bias = layer.bias.to(dtype)
    for shape in ((1,), (1, 1), (2, 3), (1, 17), (3, 200)):
        x = random(*shape, inputs).to(dtype)
        out = layer(x)
        assert out.dtype == dtype
        assert out.shape == (*shape, outputs)
        assert difference(out, x.double() @ weight.T + layer.bias.double()) < 0.01
        assert torch.equal(out, layer(x))


@BITS
def test_what_is_not_contiguous_is_read_as_it_lies(bits: int) -> None:
    layer = packed_layer(64, 64, bits)
    wide = random(5, 128)
    assert torch.equal(layer(wide[:, 64:]), layer(wide[:, 64:].clone()))
    tall = random(64, 5)
    assert torch.equal(layer(tall.T), layer(tall.T.clone()))


@BITS
def test_the_kernel_of_this_machine_is_used_for_whole_vectors(bits: int) -> None:
    assert packed_layer(64, 64, bits).kernel == KERNELS[bits, True]
    assert packed_layer(64, 48, bits).kernel == PLAIN  # the kernels read 32 at a time


def raises(*_: Any) -> Any:
    raise NotImplementedError("no such kernel")


def wrong(x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    return 1.1 * KERNELS[8, True].multiply(x, weights, scales)


@pytest.mark.parametrize("fault", [{"pack": raises}, {"multiply": raises}, {"multiply": wrong}])
def test_a_kernel_that_is_missing_or_wrong_is_replaced_and_said_once_for_the_model(
    fault: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = save_family("llama", tmp_path)
    expected = load_model(path, device="cpu", quantization="int8")[0]
    caplog.clear()
    monkeypatch.setitem(packed.KERNELS, (8, True), replace(KERNELS[8, True], **fault))
    with caplog.at_level(logging.WARNING):
        model, _ = load_model(path, device="cpu", quantization="int8")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("neuroscope")] == [
        "29 of 29 layers have no kernel for packed weights on cpu and are dequantised for every pass, "
        "among them one of 32 x 32"
    ]
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode():
        assert difference(model(ids).logits, expected(ids).logits) < 0.03


@BITS
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", [(64, 64, 128), (64, 40)])
def test_joined_layers_give_what_each_gives_and_take_no_more_memory(
    bits: int, bias: bool, sizes: tuple[int, ...]
) -> None:
    parts = [packed_layer(size, 64, bits, bias=bias, seed=size) for size in sizes]
    rows = [random(number, 64) for number in (1, 9, 400)]
    apart = [torch.cat([part(x) for part in parts], -1) for x in rows]
    joined = PackedLinear.of(parts)
    assert isinstance(joined, PackedLinear if sizes[1] == 64 or bits == 8 else SideBySide)
    for x, wanted in zip(rows, apart, strict=True):
        torch.testing.assert_close(joined(x), wanted, rtol=1e-5, atol=1e-5)
        assert torch.equal(torch.cat([part(x) for part in parts], -1), wanted)
    if isinstance(joined, PackedLinear):
        held = {part.packed.untyped_storage().data_ptr() for part in parts}
        assert held == {joined.packed.untyped_storage().data_ptr()}


def test_layers_of_other_kinds_are_run_side_by_side() -> None:
    parts = [packed_layer(64, 64, 8), packed_layer(64, 64, 4), nn.Linear(64, 5)]
    x = random(1, 64)
    with torch.no_grad():
        assert torch.equal(PackedLinear.of(parts)(x), torch.cat([part(x) for part in parts], -1))
        assert torch.equal(PackedLinear.of(parts[::-1])(x), torch.cat([part(x) for part in parts[::-1]], -1))


@BITS
def test_packed_weights_stay_on_their_device_in_their_dtype(bits: int) -> None:
    layer = packed_layer(64, 64, bits)
    kept = copy.deepcopy(layer.to("cpu"))
    for change in (lambda: layer.to("meta"), layer.half, lambda: nn.Sequential(layer).double()):
        with pytest.raises(ModelError, match="Load the model with that device and dtype"):
            change()
    assert torch.equal(layer(torch.ones(1, 64)), kept(torch.ones(1, 64)))


def test_an_unknown_quantisation_is_refused_with_those_known() -> None:
    with pytest.raises(ModelError, match=r"'q3' is not known\. Use none, int8, int4"):
        bits_of("q3")


def test_a_weight_that_was_not_loaded_is_refused(tiny_llama: tuple[Any, Any]) -> None:
    with torch.device("meta"):
        model = type(tiny_llama[0])(tiny_llama[0].config)
    with pytest.raises(ModelError, match=r"only its shape\. Fetch the model anew"):
        pack_linear_layers(model, 8, CPU)


def held(model: nn.Module) -> int:
    """Bytes of all weights, what is shared once."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def dequantised_twin(model: nn.Module, twin: nn.Module) -> None:
    """Puts the weights that `model`'s packed layers stand for into the same layers of `twin`."""
    theirs = dict(twin.named_modules())
    for name, layer in model.named_modules():
        if isinstance(layer, PackedLinear):
            other: Any = theirs[name]
            turned = isinstance(other, nn.Linear)
            other.weight = nn.Parameter(layer.weight if turned else layer.weight.T.contiguous())


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_runs_packed_as_with_the_dequantised_weights_and_holds_less(
    family: str, quantization: str, tmp_path: Path
) -> None:
    path = save_family(family, tmp_path, layers=2)
    model, _ = load_model(path, device="cpu", dtype="float32", quantization=quantization)
    twin, _ = load_model(path, device="cpu", dtype="float32")
    assert torch.equal(model.get_input_embeddings().weight, twin.get_input_embeddings().weight)
    assert held(model) < held(twin)
    linear = [layer for layer in model.get_decoder().modules() if isinstance(layer, nn.Linear)]
    assert not linear
    assert isinstance(model.get_output_embeddings(), PackedLinear)
    dequantised_twin(model, twin)
    ids = torch.randint(0, 300, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        first, second = model(ids, use_cache=True), twin(ids, use_cache=True)
        assert difference(first.logits, second.logits) < 0.05
        assert model.dtype == torch.float32


def test_other_towers_of_a_model_are_left_alone(tmp_path: Path) -> None:
    model, _ = load_model(save_family("gemma3_nested", tmp_path), device="cpu", quantization="int8")
    towers = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    assert towers
    assert all("vision" in name or "projector" in name for name in towers)
