"""Weights of layers with one input lie together, and nobody but the product notices."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroscope.models.joining import joined
from neuroscope.models.together import together


def layers(*sizes: int, bias: bool = False, dtype: torch.dtype = torch.float32) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(8, size, bias=bias, dtype=dtype) for size in sizes]


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight, bias)


def memory(*tensors: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


@pytest.mark.parametrize("bias", [False, True])
def test_joined_layers_give_what_each_gives(bias: bool) -> None:
    parts = layers(6, 2, 2, bias=bias)
    x = torch.randn(1, 8)
    with torch.inference_mode():
        expected = [part(x) for part in parts]
        op = joined(parts, product)
        assert op is not None
        torch.testing.assert_close(op(x), torch.cat(expected, -1))
        for part, wanted in zip(parts, expected, strict=True):
            assert torch.equal(part(x), wanted)


def test_weights_are_in_memory_once_however_often_they_are_joined() -> None:
    parts = layers(6, 2, 2)
    names = {id(part.weight) for part in parts}
    before = [part.weight.detach().clone() for part in parts]
    with torch.inference_mode():
        joined(parts, product)
        first = memory(*(part.weight for part in parts))
        joined(parts, product)
    assert len(first) == 1
    assert memory(*(part.weight for part in parts)) == first
    assert {id(part.weight) for part in parts} == names
    assert parts[0].weight.untyped_storage().nbytes() == 10 * 8 * 4
    assert all(torch.equal(part.weight, was) for part, was in zip(parts, before, strict=True))
    assert not any(part.weight.is_inference() for part in parts)


def test_a_weight_that_is_changed_in_place_is_changed_in_the_product() -> None:
    parts = layers(6, 2)
    op = joined(parts, product)
    assert op is not None
    with torch.no_grad():
        parts[1].weight.zero_()
    assert not op(torch.randn(1, 8))[:, 6:].any()
    assert op(torch.randn(1, 8))[:, :6].all()


def test_joined_layers_can_still_be_copied_and_moved() -> None:
    parts = layers(6, 2)
    joined(parts, product)
    other = copy.deepcopy(nn.ModuleList(parts)).double()
    assert torch.equal(other[1].weight.float(), parts[1].weight)  # type: ignore[operator, arg-type]
    assert not memory(parts[0].weight) & memory(*other.parameters())


def unlike() -> dict[str, list[nn.Module]]:
    turned = nn.Linear(8, 8, bias=False)
    turned.weight.data = turned.weight.data.T
    return {
        "another width": [*layers(6), nn.Linear(4, 6, bias=False)],
        "another dtype": [*layers(6), *layers(6, dtype=torch.bfloat16)],
        "a bias": [*layers(6), *layers(6, bias=True)],
        "another class": [*layers(6), type("Other", (nn.Linear,), {})(8, 6, bias=False)],
        "a transposed weight": [*layers(6), turned],
        "no linear layer": [nn.Identity(), *layers(6)],
    }


@pytest.mark.parametrize("what", unlike())
def test_layers_that_are_not_alike_stay_as_they_are(what: str) -> None:
    parts = unlike()[what]
    before = [memory(*part.parameters()) for part in parts]
    assert joined(parts, product) is None
    assert [memory(*part.parameters()) for part in parts] == before


def test_parts_in_one_memory_but_in_another_order_are_copied() -> None:
    whole = torch.arange(12.0).view(6, 2)
    found, parts = together([whole[2:4], whole[:2]])
    assert found.tolist() == [[4, 5], [6, 7], [0, 1], [2, 3]]
    assert memory(found) == memory(*parts) != memory(whole)
    assert memory(together([whole[:2], whole[2:4]])[0]) == memory(whole)
