"""Prompts that begin alike: run once, used again, and every number bit for bit what a fresh run gives.

Oracle: the same prompt on a backend of its own that has run nothing before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fakes.families import FAMILIES, VOCABULARY, save_family
from fakes.tiny import CONTEXT, TINY_LAYER
from torch import Tensor

from neuroscope.models.cache import GrowingLayer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.prefill import PREFILL_CELL, Prefill
from neuroscope.prefix import PrefixStore

Load = Callable[[str, str], Any]
MB = 10**6


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The model of a family in a dtype, each once."""
    torch.set_num_threads(1)

    @cache
    def saved(name: str) -> Path:
        return save_family(name, tmp_path_factory.mktemp(name))

    @cache
    def loaded(name: str, dtype: str) -> Any:
        return load_model(saved(name), device="cpu", dtype=dtype)[0]

    return loaded


def ids_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(10, VOCABULARY, (length,), generator=generator).tolist()
    return ids


class Numbers(NamedTuple):
    """Everything a prompt and some tokens after it give."""

    residual: Tensor  # [prompt, d_model]
    logits: list[Tensor]
    reused: int


def never() -> bool:
    return False


def run(prefill: Prefill, ids: Sequence[int], after: Sequence[int] = (11, 12, 13)) -> Numbers:
    begun = prefill.begin(ids)
    cells = list(begun.cells(never))
    assert begun.last is not None
    logits = [begun.last.logits]
    logits += [begun.forward([token]).logits for token in after]
    residual = torch.cat([cell._residual for cell in cells if cell._residual is not None])
    return Numbers(residual, logits, begun.reused_tokens)


def fresh(model: Any, ids: Sequence[int], layer: int = 2) -> Numbers:
    return run(Prefill(TorchBackend(model, None, layer), PrefixStore(0)), ids)


def assert_same(found: Numbers, expected: Numbers) -> None:
    assert torch.equal(found.residual, expected.residual)
    for one, other in zip(found.logits, expected.logits, strict=True):
        assert torch.equal(one, other)


def conversations() -> list[list[int]]:
    """Prompts that share two, one and no cell, that end on the grid's lines and beside them."""
    a, b = ids_of(156, seed=1), ids_of(150, seed=2)
    return [
        a, a[:150] + [5] * 6, a[:130], a[:129], a[:128], a[:127], a[:70], a[:65], a[:64], a[:10],
        b, b[:100], a[:64] + b[64:150], b[:64] + a[64:140], [*a[:63], 9, *a[64:150]],
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_every_order_the_numbers_are_those_of_a_fresh_run(load: Load, family: str, dtype: str) -> None:
    model = load(family, dtype)
    prompts = conversations()
    expected = [fresh(model, ids) for ids in prompts]
    pick = random.Random(0)
    room = PrefixStore(MB)
    tight = PrefixStore(MB)
    reused = 0
    for store in (room, tight):
        prefill = Prefill(TorchBackend(model, None, 2), store)
        for number in [*range(len(prompts)), *(pick.randrange(len(prompts)) for _ in range(8))]:
            found = run(prefill, prompts[number])
            assert_same(found, expected[number])
            assert store.used <= store.capacity
            reused += found.reused
        tight.capacity = room.used // 3  # room for some cells only
    assert len(tight) < len(room)
    assert reused > 15 * PREFILL_CELL


def test_a_talk_interrupted_by_another_runs_only_what_is_new(load: Load) -> None:
    model = load("llama", "float32")
    ran: list[int] = []
    backend = TorchBackend(model, None, 2)
    forward = backend.forward
    backend.forward = lambda ids: ran.append(len(ids)) or forward(ids)  # type: ignore[method-assign,func-returns-value]
    prefill = Prefill(backend, PrefixStore(MB))
    talk, title = ids_of(140, seed=1), ids_of(90, seed=2)
    run(prefill, talk[:135])
    assert ran == [64, 64, 7, 1, 1, 1]
    run(prefill, title)
    ran.clear()
    assert run(prefill, talk).reused == 128
    assert ran == [12, 1, 1, 1]
    ran.clear()
    assert run(prefill, title).reused == 64
    assert ran == [26, 1, 1, 1]


def test_what_the_cache_holds_already_is_not_copied(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TorchBackend(load("llama", "float32"), None, 2)
    prefill = Prefill(backend, PrefixStore(MB))
    talk = ids_of(140, seed=1)
    run(prefill, talk[:100])
    monkeypatch.setattr(backend, "restore", lambda saved: pytest.fail("copied"))
    assert run(prefill, talk[:130]).reused == 64
    assert run(prefill, talk).reused == 128


def test_the_answer_runs_again_as_part_of_the_next_prompt(load: Load) -> None:
    """Tokens fed one by one are rounded otherwise than in a cell, so their part of the cache is of no use."""
    backend = TorchBackend(load("llama", "float32"), None, 2)
    prefill = Prefill(backend, PrefixStore(MB))
    talk = ids_of(140, seed=1)
    begun = prefill.begin(talk[:100])
    list(begun.cells(never))
    for token in talk[100:135]:
        begun.forward([token])
    found = run(prefill, talk)
    assert found.reused == 64
    assert_same(found, fresh(load("llama", "float32"), talk))


def test_the_room_that_an_earlier_prompt_made_changes_no_number() -> None:
    """Heads of 9 floats: where a head begins in memory, and so how its sums are grouped, depends on that room."""
    from transformers import AutoModelForCausalLM, GPT2Config

    sizes = {"n_embd": 36, "n_layer": 2, "n_head": 4, "n_positions": 600, "vocab_size": VOCABULARY}
    config = GPT2Config(**sizes, initializer_range=0.3, bos_token_id=0, eos_token_id=0)
    model = AutoModelForCausalLM.from_config(config).eval()
    ids, after = ids_of(250, seed=1), ids_of(20, seed=2)  # the cache grows in the middle of the answer
    alone = run(Prefill(TorchBackend(model, None, 1), PrefixStore(0)), ids, after)
    prefill = Prefill(TorchBackend(model, None, 1), PrefixStore(MB))
    run(prefill, [*ids[:128], *ids_of(272, seed=3)])
    found = run(prefill, ids, after)
    assert found.reused == 128
    assert_same(found, alone)


@pytest.fixture
def tiny(tiny_gemma: tuple[Any, Any]) -> TorchBackend:
    return TorchBackend(tiny_gemma[0], None, TINY_LAYER)


def test_a_prompt_longer_than_the_store_runs_and_its_beginning_is_used_again(tiny: TorchBackend) -> None:
    store = PrefixStore(110_000)  # three cells of 33 kB
    prefill = Prefill(tiny, store)
    ids = ids_of(CONTEXT - 4, seed=1)
    expected = fresh(tiny.model, ids, TINY_LAYER)
    assert_same(run(prefill, ids), expected)
    assert len(store) == 3
    assert store.used <= store.capacity
    assert run(prefill, ids_of(100, seed=2)).reused == 0
    again = run(prefill, ids)
    assert again.reused == 2 * PREFILL_CELL, "the other prompt's cell took the place of the third"
    assert_same(again, expected)


def test_no_reuse_at_all_runs_every_prompt_whole(tiny: TorchBackend) -> None:
    prefill = Prefill(tiny, PrefixStore(0))
    ids = ids_of(300, seed=1)
    assert [run(prefill, ids).reused for _ in range(2)] == [0, 0]


def test_stopped_within_a_prompt_what_has_run_is_kept(tiny: TorchBackend) -> None:
    prefill = Prefill(tiny, PrefixStore(MB))
    ids = ids_of(300, seed=1)
    asked = iter([False, False, True])
    begun = prefill.begin(ids)
    assert len(list(begun.cells(lambda: next(asked)))) == 2
    assert begun.last is None
    run(prefill, ids_of(80, seed=2))
    again = run(prefill, ids)
    assert again.reused == 2 * PREFILL_CELL
    assert_same(again, fresh(tiny.model, ids, TINY_LAYER))


@pytest.mark.parametrize("failing", [1, 3, 5, 6])
def test_a_pass_that_fails_half_way_spoils_nothing_that_was_kept(tiny: TorchBackend, failing: int) -> None:
    """It fails inside the model, when some layers have cached the new positions and others not."""
    prefill = Prefill(tiny, PrefixStore(MB))
    ids, other = ids_of(300, seed=1), ids_of(200, seed=2)
    expected, others = fresh(tiny.model, ids, TINY_LAYER), fresh(tiny.model, other, TINY_LAYER)
    run(prefill, other)
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == failing:
            raise RuntimeError("broken")

    handle = tiny.model.model.layers[-1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="broken"):
        run(prefill, ids)
    handle.remove()
    again = run(prefill, ids)
    assert again.reused == min(failing - 1, 4) * PREFILL_CELL
    assert_same(again, expected)
    assert_same(run(prefill, other), others)


def test_a_copy_back_that_fails_half_way_spoils_nothing(
    tiny: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill = Prefill(tiny, PrefixStore(MB))
    ids = ids_of(300, seed=1)
    expected = run(prefill, ids)
    run(prefill, ids_of(80, seed=2))
    update, calls = GrowingLayer.update, []

    def fail(layer: GrowingLayer, *new: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("broken")
        return update(layer, *new)

    with monkeypatch.context() as patched:
        patched.setattr(GrowingLayer, "update", fail)
        with pytest.raises(RuntimeError, match="broken"):
            prefill.begin(ids)
    again = run(prefill, ids)
    assert again.reused == 4 * PREFILL_CELL
    assert_same(again, expected)


def test_out_of_memory_gives_the_stores_memory_back(tiny: TorchBackend) -> None:
    store = PrefixStore(MB)
    prefill = Prefill(tiny, store)
    run(prefill, ids_of(300, seed=1))
    assert store.used

    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    handle = tiny.model.model.layers[-1].register_forward_pre_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        run(prefill, ids_of(300, seed=2))
    handle.remove()
    assert (len(store), store.used) == (0, 0)
    assert run(prefill, ids_of(300, seed=1)).reused == 0


def test_without_memory_for_a_copy_the_prompt_runs_all_the_same(
    tiny: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("neuroscope.models.torch_backend.copy_out", fail)
    prefill = Prefill(tiny, PrefixStore(MB))
    run(prefill, ids_of(300, seed=1))
    assert run(prefill, ids_of(300, seed=1)).reused == 4 * PREFILL_CELL, "the cache itself still holds them"
    run(prefill, ids_of(80, seed=2))
    assert run(prefill, ids_of(300, seed=1)).reused == 0


def test_a_cache_without_single_positions_is_never_used_again(tiny_gemma: tuple[Any, Any]) -> None:
    """As of recurrent models."""
    from transformers.cache_utils import DynamicCache

    class Recurrent(TorchBackend):
        def rewind(self, length: int) -> int:
            self._cache, self._length = DynamicCache(config=self.model.config), 0
            return 0

    store = PrefixStore(MB)
    prefill = Prefill(Recurrent(tiny_gemma[0], None, TINY_LAYER), store)
    prefill.backend.rewind(0)
    ids = ids_of(200, seed=1)
    first = run(prefill, ids)
    again = run(prefill, ids)
    assert (again.reused, len(store)) == (0, 0)
    assert_same(again, first)
