"""The lean step as a graph, on a processor: what is recorded, and what happens where recording fails.

`Tape` stands for a CUDA graph: it plays the recorded operations into the memory they were recorded with, and nothing
else, so that whatever the host had settled at the recording shows in the numbers.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from fakes.families import CONTEXT, FAMILIES, WINDOW
from fakes.recorders import FROM_OR_TO_HOST, Eager, Tape
from fakes.steps import Load, assert_the_same, distance, ids_of, loading
from torch import Tensor, nn

from neuroscope.engine import Engine
from neuroscope.errors import ModelError
from neuroscope.models import cache as caches
from neuroscope.models import decode, graphed
from neuroscope.models.cache import copy_out, make_cache, truncate
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.graphed import GraphStep, recorder_for, width_at
from neuroscope.models.hooks import decoder, residual_at
from neuroscope.models.lean import LeanStep
from neuroscope.models.loading import load_model
from neuroscope.models.sampling import Sampling
from neuroscope.models.token_ids import TokenIds
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder

TOLERANCE = {"float32": 2e-5, "bfloat16": 0.16}
"""Largest distance of two ways, as a share of the length; a mistake in a mask or a position costs 0.3 and more."""
LAYER = 2
BORDERS = (16, 32, 64, 128)
"""Positions from which on attention reads a wider part, and at the last all of the context."""

families = pytest.mark.parametrize("name", FAMILIES)
some_families = pytest.mark.parametrize("name", ["gemma2", "mistral", "gpt_neox"])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths and buffers that a short text outgrows."""
    monkeypatch.setattr(graphed, "FIRST_WIDTH", BORDERS[0])
    monkeypatch.setattr(caches, "FIRST_CAPACITY", 8)
    monkeypatch.setattr(caches, "CAPACITY_STEP", 8)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    return loading(tmp_path_factory)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(decode, "perf_counter", lambda: found.now)
    return found


class Clock:
    now = 0.0


class SlowTape(Tape):
    """Each replay takes a second."""

    clock: Clock

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        recording = super().record(work)

        def slowly() -> None:
            self.clock.now += 1
            recording()

        return slowly


def graph_of(model: Any, tape: Tape | None = None) -> TorchBackend:
    backend = TorchBackend(model, None, LAYER, decode="graph", recorder=tape or Tape())
    assert backend.decode.way == "CUDA graph"
    return backend


def own_of(model: Any) -> TorchBackend:
    return TorchBackend(model, None, LAYER, decode="model")


def step_of(model: Any, tape: Tape) -> GraphStep:
    (kernel,) = decode.kernels(torch.device("meta"), torch.float32)
    return GraphStep(LeanStep(model, LAYER, CONTEXT, kernel), CONTEXT, tape)


def assert_equal(found: Any, expected: Any) -> None:
    assert torch.equal(found.residual, expected.residual)
    assert torch.equal(found.logits, expected.logits)


@pytest.mark.parametrize(("recorder", "dtype"), [(Eager, "float32"), (Tape, "float32"), (Tape, "bfloat16")])
@families
def test_a_graph_is_the_models_own_pass(
    load: Load, name: str, dtype: str, recorder: Callable[[], Tape]
) -> None:
    """Past every window and border, behind a prefill, behind positions cut off and put back, to the context's end."""
    model, tape = load(name, dtype), recorder()
    graph, own = graph_of(model, tape), own_of(model)
    assert_the_same(graph, own, ids_of(BORDERS[2] + 4), TOLERANCE[dtype])
    assert tape.tried == 1 + 4, "one recording for the trial, one for each width"
    for backend in (graph, own):
        saved = backend.take(0, WINDOW + 4)
        assert backend.rewind(0) == 0
        backend.restore([saved])
    assert_the_same(graph, own, ids_of(6, seed=1), TOLERANCE[dtype])
    for backend in (graph, own):
        backend.forward(ids_of(CONTEXT - 4 - WINDOW - 10, seed=2))
    assert_the_same(graph, own, ids_of(4, seed=3), TOLERANCE[dtype])
    assert graph.decode.way == "CUDA graph"


@families
def test_a_recording_neither_waits_for_the_device_nor_brings_numbers_to_it(load: Load, name: str) -> None:
    tape = Tape()
    graph = graph_of(load(name), tape)
    for token in ids_of(BORDERS[1] + 1):
        graph.forward([token])
    assert len(tape.recordings) == 4
    for recording in tape.recordings:
        assert recording.played > 0
        assert {"aten::index_copy_", "aten::embedding", "aten::copy_"} <= recording.names
        assert not recording.names & FROM_OR_TO_HOST


def test_what_a_recording_must_not_hold_is_seen() -> None:
    def work() -> None:
        x = torch.tensor([3.0])
        x.add_(x.item())

    tape = Tape()
    with torch.inference_mode():
        tape.record(work)
    assert {"aten::detach_", "aten::_local_scalar_dense"} == tape.recordings[0].names & FROM_OR_TO_HOST


@some_families
def test_what_a_caller_got_is_not_written_again(load: Load, name: str) -> None:
    graph = graph_of(load(name))
    graph.forward(ids_of(5))
    first = graph.forward([20])
    kept = replace(first, logits=first.logits.clone(), residual=first.residual.clone())
    graph.forward([30])
    assert_equal(first, kept)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30])
@some_families
def test_what_lies_behind_the_text_is_not_seen(
    load: Load, name: str, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in memory that was never written, nor of positions cut off."""
    model = load(name)
    clean = graph_of(model)
    clean.forward(ids_of(10))
    expected = [clean.forward([token]) for token in ids_of(30, seed=1)]

    grown = caches.GrowingLayer._grown

    def spoiled(self: Any, full: Any, like: Tensor, capacity: int) -> Tensor:
        found = grown(self, full, like, capacity)
        found[:, :, self.length :] = number
        return found

    monkeypatch.setattr(caches.GrowingLayer, "_grown", spoiled)
    graph = graph_of(model)
    graph.forward(ids_of(10))
    saved = graph.take(0, 10)
    assert saved is not None
    wrong = replace(saved, tensors=tuple(torch.full_like(tensor, number) for tensor in saved.tensors))
    for _ in range(4):
        graph.restore([wrong])
    assert graph.rewind(10) == 10
    for token, wanted in zip(ids_of(30, seed=1), expected, strict=True):
        assert_equal(graph.forward([token]), wanted)


@some_families
def test_a_token_has_the_same_bits_wherever_the_positions_before_it_came_from(load: Load, name: str) -> None:
    model = load(name)
    fresh, used = graph_of(model), graph_of(model)
    fresh.forward(ids_of(40))
    expected = [fresh.forward([token]) for token in ids_of(30, seed=1)]
    used.forward(ids_of(40))
    saved = used.take(0, 40)
    used.rewind(0)
    for token in ids_of(CONTEXT - 50, seed=2):  # another text, which the buffers have grown for
        used.forward([token])
    for again in range(3):
        used.rewind(0)
        assert saved is not None
        if again == 0:
            used.restore([saved])
        else:
            used.forward(ids_of(40))
        for token, wanted in zip(ids_of(30, seed=1), expected, strict=True):
            assert_equal(used.forward([token]), wanted)


@some_families
def test_the_first_token_of_a_conversation_is_the_lean_steps_in_a_used_cache_too(
    load: Load, name: str
) -> None:
    """Fresh caches have no memory yet that a recording could know."""
    tape = Tape()
    graph = graph_of(load(name), tape)
    expected = [graph.forward([token]) for token in ids_of(4)]
    graph.forward(ids_of(50, seed=1))
    graph.rewind(0)
    played = [recording.played for recording in tape.recordings]
    for token, wanted in zip(ids_of(4), expected, strict=True):
        assert_equal(graph.forward([token]), wanted)
        if token == ids_of(4)[0]:
            assert [recording.played for recording in tape.recordings] == played


def test_recordings_are_used_by_the_next_conversation(load: Load) -> None:
    """Once the buffers are as large as its text needs: those that grew are recorded anew."""
    tape = Tape()
    graph = graph_of(load("llama"), tape)

    def talk() -> int:
        before = tape.tried
        graph.rewind(0)
        for token in ids_of(BORDERS[2] + 2):
            graph.forward([token])
        return tape.tried - before

    first, _second, third = talk(), talk(), talk()
    assert first == 4
    assert third == 0


def test_a_long_conversations_memory_is_given_back(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "KEPT", BORDERS[1])
    graph, own = graph_of(load("llama"), Tape()), own_of(load("llama"))
    graph.rewind(0)
    for length, is_kept in ((3, True), (BORDERS[2], False), (3, True)):
        for backend in (graph, own):
            backend.rewind(0)
        for token in ids_of(length):
            found, expected = graph.forward([token]), own.forward([token])
            assert distance(found.logits, expected.logits) < TOLERANCE["float32"]
        held = graph._cache
        graph.rewind(0)
        assert (graph._cache is held) is is_kept
    assert graph.decoding == "CUDA graph"


def test_a_step_serves_several_caches_in_turn(load: Load) -> None:
    model, tape = load("gemma2"), Tape()
    step = step_of(model, tape)
    talks = [(make_cache(model.config), own_of(model), ids_of(40, seed=seed)) for seed in (1, 2)]
    with torch.inference_mode():
        for position in range(40):
            for kept, own, ids in talks:
                logits, residual = step.run(ids[position], position, kept)
                expected = own.forward([ids[position]])
                assert distance(logits, expected.logits) < TOLERANCE["float32"]
                assert distance(residual, expected.residual) < TOLERANCE["float32"]
    assert len(tape.recordings) == 2 * 3


def test_recordings_of_memory_that_is_gone_are_dropped(load: Load) -> None:
    """With their cache, or when it has other buffers."""
    model, tape = load("llama"), Tape()
    step, kept = step_of(model, tape), make_cache(model.config)
    living = []
    with torch.inference_mode():
        for position, token in enumerate(ids_of(BORDERS[1] + 2)):
            step.run(token, position, kept)
            living += map(ref, tape.recordings)
            tape.recordings.clear()
    gc.collect()
    assert [each() is not None for each in living] == [False, False, True]
    del kept
    gc.collect()
    assert not any(each() is not None for each in living)


def test_a_seed_gives_the_same_text_with_and_without_a_kept_beginning(load: Load) -> None:
    model = load("llama")
    generator = torch.Generator().manual_seed(0)
    sae = SparseAutoencoder(torch.randn(32, 16, generator=generator), torch.zeros(16), torch.zeros(16))
    tokenizer = load_model(Path(model.config._name_or_path), device="cpu", dtype="float32")[1]

    def engine(megabytes: int) -> Engine:
        backend = TorchBackend(model, tokenizer, LAYER, decode="graph", recorder=Tape())
        return Engine(backend, sae, ChatTokenizer(tokenizer), prefix_cache_mb=megabytes)

    def answer(of: Engine, ids: list[int], seed: int) -> list[tuple[int, float | None]]:
        sampling = Sampling(max_tokens=20, temperature=1.0, seed=seed, logprobs=0)
        steps = of.generate(of.prepare(TokenIds(tuple(ids))), sampling)
        return [(step.token_id, step.logprob) for step in steps]

    keeps, runs_whole = engine(100), engine(0)
    reused = 0
    for seed in range(4):
        ids = [10 + token % 280 for token in ids_of(64) + ids_of(1 + 7 * seed, seed=seed)]
        assert answer(keeps, ids, seed) == answer(runs_whole, ids, seed)
        reused += keeps.reused_tokens
    assert reused == 3 * 64


FAULTS = [
    RuntimeError("CUDA error: operation not permitted when stream is capturing"),
    torch.OutOfMemoryError("CUDA out of memory"),
    TypeError("no such argument"),
    AttributeError("module 'torch.cuda' has no attribute"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("name", ["mistral", "gpt2"])
def test_a_recording_that_fails_in_the_middle_of_an_answer_leaves_it_whole(
    load: Load, name: str, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """At the second border, when the work has been done once: the position is there once, and the lean step goes on."""
    model, tape = load(name), Tape(fails_at=3, fault=fault)
    graph, own = graph_of(model, tape), own_of(model)
    graph.forward(ids_of(80))  # from here on the buffers are large enough: no recording is dropped for them
    graph.rewind(0)
    assert_the_same(graph, own, ids_of(BORDERS[1]))
    assert graph.decode.way == "CUDA graph"
    assert_the_same(graph, own, ids_of(12, seed=1))
    assert graph.decode.way.startswith("lean, ")
    assert {kept.length for kept in graph._cache.layers} == {BORDERS[1] + 12}
    assert_the_same(graph, own, ids_of(BORDERS[2], seed=2))
    assert tape.tried == 4, "it was tried again"
    said = [(record.levelno, record.message) for record in caplog.records if record.name == graphed.__name__]
    assert said == [(logging.WARNING, f"decoding: CUDA graphs fail, the lean step goes on: {fault}")]
    recordings = [ref(each) for each in tape.recordings]
    tape.recordings.clear()
    fault.__traceback__ = None  # what failed is held by this test
    gc.collect()
    assert not any(each() is not None for each in recordings)
    before = graph._cache
    graph.rewind(0)
    assert graph._cache is not before
    own.rewind(0)
    assert_the_same(graph, own, ids_of(5))


def test_a_replay_that_fails_leaves_the_answer_whole(load: Load) -> None:
    class Breaks(Tape):
        def record(self, work: Callable[[], None]) -> Callable[[], None]:
            recording, left = super().record(work), iter(range(6))

            def play() -> None:
                if next(left, None) is None:
                    raise RuntimeError("unspecified launch failure")
                recording()

            return play

    model = load("mistral")
    graph, own = graph_of(model, Breaks()), own_of(model)
    assert_the_same(graph, own, ids_of(40))
    assert graph.decode.way.startswith("lean, ")


def test_what_is_no_fault_of_the_graph_is_raised_and_the_cache_can_be_used_again(load: Load) -> None:
    tape = Tape(fails_at=1, fault=KeyboardInterrupt())
    graph, own = graph_of(load("llama"), tape), own_of(load("llama"))
    graph.forward(ids_of(6))  # the interrupted token goes behind
    with pytest.raises(KeyboardInterrupt):
        graph.forward([20])
    assert graph.rewind(4) == 4
    own.forward(ids_of(4))
    assert_the_same(graph, own, [21])
    assert not any(kept.keys[:, :, 5:].any() for kept in graph._cache.layers), (
        "what was half done is still there"
    )
    assert_the_same(graph, own, ids_of(5, seed=1))
    assert graph.decode.way == "CUDA graph"


def test_a_hook_placed_later_is_obeyed(load: Load) -> None:
    graph, own = graph_of(load("llama")), own_of(load("llama"))
    for backend in (graph, own):
        backend.forward(ids_of(6))
    assert_the_same(graph, own, [20])
    with residual_at(graph.model, 1) as tap:
        assert_the_same(graph, own, [21])
        assert tap.take().shape == (1, 1, 32)
    assert_the_same(graph, own, [22])


def test_auto_takes_a_graph_that_is_no_slower(load: Load, clock: Clock) -> None:
    backend = TorchBackend(load("llama"), None, LAYER, recorder=Tape())
    assert backend.decode.way == backend.decoding == "CUDA graph"
    assert backend.decode.why.endswith("from the model's own pass; 0.00 ms a token, the lean step 0.00")


def test_auto_leaves_a_graph_that_is_slower(load: Load, clock: Clock) -> None:
    tape = SlowTape()
    tape.clock = clock
    backend = TorchBackend(load("llama"), None, LAYER, recorder=tape)
    assert backend.decode.way.startswith("lean, ")
    assert backend.decode.why.endswith("CUDA graphs take 1000.00 ms a token, the lean step 0.00")
    asked_for = TorchBackend(load("llama"), None, LAYER, decode="graph", recorder=tape)
    assert asked_for.decode.way == "CUDA graph"


@pytest.mark.parametrize("name", ["gemma2", "gpt2"])
def test_a_graph_that_gives_other_numbers_is_not_used(
    load: Load, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one that sees only itself."""
    monkeypatch.setattr(
        GraphStep,
        "_mask",
        lambda self, numbers, window, dtype: torch.where(numbers == self._position, 0.0, -torch.inf).to(
            dtype
        )[None, None, None],
    )
    model = load(name)
    backend = TorchBackend(model, None, LAYER, recorder=Tape())
    assert backend.decode.way.startswith("lean, ")
    assert "CUDA graphs give other numbers" in backend.decode.why
    assert_the_same(backend, own_of(model), ids_of(5))
    with pytest.raises(
        ModelError, match=r"decode graph cannot be used .* other numbers.* Set decode to auto"
    ):
        _ = TorchBackend(model, None, LAYER, decode="graph", recorder=Tape()).decode


def test_a_graph_that_cannot_be_recorded_is_not_used(load: Load) -> None:
    model = load("llama")
    backend = TorchBackend(model, None, LAYER, recorder=Tape(fails_at=0))
    assert backend.decode.way.startswith("lean, ")
    assert backend.decode.why.endswith("CUDA graphs fail: operation not permitted")
    with pytest.raises(ModelError, match=r"decode graph cannot be used .* CUDA graphs fail: operation not"):
        _ = TorchBackend(model, None, LAYER, decode="graph", recorder=Tape(fails_at=0)).decode


def test_without_a_lean_step_there_is_no_graph(load: Load) -> None:
    model, tape = load("llama"), Tape()
    layers = decoder(model).layers
    layers[1].__class__ = type("SparseDecoderLayer", (type(layers[1]),), {})
    assert TorchBackend(model, None, LAYER, recorder=tape).decode.way == "model"
    with pytest.raises(ModelError, match=r"decode graph cannot be used .* SparseDecoderLayer are not known"):
        _ = TorchBackend(model, None, LAYER, decode="graph", recorder=tape).decode
    assert tape.tried == 0


@pytest.mark.parametrize("mode", ["lean", "model"])
def test_who_asks_for_another_way_gets_that(load: Load, mode: str) -> None:
    tape = Tape()
    backend = TorchBackend(load("llama"), None, LAYER, decode=mode, recorder=tape)
    assert backend.decode.way.startswith(mode)
    assert tape.tried == 0


def test_a_processor_has_no_graphs(load: Load) -> None:
    """`auto` is the lean step there, and an emptied cache gives its memory back."""
    assert recorder_for(torch.device("cpu")) is None
    assert recorder_for(torch.device("mps")) is None
    with pytest.raises(ModelError, match=r"decode graph needs a CUDA device, and the model is on cpu\. Set"):
        _ = TorchBackend(load("llama"), None, LAYER, decode="graph").decode
    backend = TorchBackend(load("llama"), None, LAYER)
    assert backend.decode.way.startswith("lean, ")
    assert "graph" not in str(backend.decode)
    backend.forward(ids_of(4))
    before = backend._cache
    backend.rewind(0)
    assert backend._cache is not before


def test_a_cache_that_cannot_be_cut_is_made_anew(load: Load) -> None:
    """As for recurrent models, whose state has no positions."""
    from transformers.cache_utils import DynamicCache

    graph = graph_of(load("llama"))
    graph._cache = DynamicCache(config=graph.model.config)
    first = graph.forward(ids_of(20))
    assert graph.rewind(0) == 0
    assert_equal(graph.forward(ids_of(20)), first)


def test_linear_layers_of_another_kind_are_recorded_too(load: Load) -> None:
    class Doubled(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.halved = nn.Parameter(linear.weight.detach() / 2, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return 2 * (x @ self.halved.T)

    model = load("llama")
    for layer in decoder(model).layers:
        layer.mlp.down_proj = Doubled(layer.mlp.down_proj)
    assert_the_same(graph_of(model), own_of(model), ids_of(5))


def test_widths_hang_on_the_position_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "FIRST_WIDTH", 256)
    assert [width_at(position, 1000) for position in (0, 255, 256, 511, 512, 999)] == [
        256,
        256,
        512,
        512,
        1000,
        1000,
    ]
    assert width_at(100, 160) == 160


def test_an_emptied_cache_has_no_old_number_left_where_a_graph_reads(load: Load) -> None:
    model = load("llama")
    graph = graph_of(model)
    graph.forward(ids_of(70))
    graph.rewind(5)
    graph.forward([20])
    for kept in graph._cache.layers:
        assert not kept.keys[:, :, 6:].any()
        assert not kept.values[:, :, 6:].any()
        assert kept.keys[:, :, :6].any(-1).all()
    assert copy_out(graph._cache, 0, 7) is None
    assert truncate(graph._cache, 70) == 6
