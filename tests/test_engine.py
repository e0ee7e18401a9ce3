"""Generation: every token with the features of its own position, and text that loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from fakes.tiny import CONTEXT, D_MODEL, TINY_LAYER

from neuroscope.engine import PREFILL_CELL, EncodedToken, Engine, PromptCell, Sampling, Step
from neuroscope.errors import ContextOverflowError, ModelError, PromptError
from neuroscope.models.backend import Forward
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.hooks import residual_at
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.prefill import Prefill
from neuroscope.prefix import PrefixStore
from neuroscope.sae import SparseActs, SparseAutoencoder, fvu, sparse

Tiny = tuple[Any, Any]
LONG = "the user said hello and the model said goodbye 🧿 " * 8  # several cells, past the sliding window
SAMPLED = Sampling(max_tokens=12, temperature=1.0, seed=3)


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(params=["tiny_gemma", "tiny_llama"])
def engine(request: pytest.FixtureRequest, tiny_sae: SparseAutoencoder) -> Engine:
    model, tokenizer = request.getfixturevalue(request.param)
    return Engine(TorchBackend(model, tokenizer, TINY_LAYER), tiny_sae, ChatTokenizer(tokenizer))


def full_pass(engine: Engine, ids: list[int]) -> tuple[list[SparseActs], list[float]]:
    """Oracle: features and FVU of every position by one forward pass without a cache."""
    assert isinstance(engine.backend, TorchBackend)
    model = engine.backend.model
    with torch.inference_mode(), residual_at(model, TINY_LAYER) as tap:
        model(input_ids=torch.tensor([ids]), use_cache=False)
        residual = tap.take()[0]
    acts = engine.sae.encode(residual)
    return sparse(acts), fvu(residual, engine.sae.decode(acts)).tolist()


def assert_same_features(found: SparseActs, expected: SparseActs) -> None:
    """Equal within rounding; a feature that only one of them has must lie at its threshold of 2."""
    one = dict(zip(found.indices.tolist(), found.values.tolist(), strict=True))
    other = dict(zip(expected.indices.tolist(), expected.values.tolist(), strict=True))
    for index in one.keys() | other.keys():
        assert one.get(index, 2.0) == pytest.approx(other.get(index, 2.0), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("text", ["hi", LONG])
def test_streamed_features_are_those_of_one_full_forward_pass(engine: Engine, text: str) -> None:
    """Own-position alignment: token t has the features of position t, `producer` those of t - 1."""
    prompt = engine.prepare(user(text))
    steps = list(engine.generate(prompt, SAMPLED))
    assert len(steps) >= 2
    acts, unexplained = full_pass(engine, prompt.ids + [step.token_id for step in steps])
    for index, step in enumerate(steps):
        assert (step.token_index, step.position) == (index, len(prompt.ids) + index)
        assert step.prompt_tokens == len(prompt.ids)
        assert_same_features(step.acts, acts[step.position])
        assert_same_features(step.producer, acts[step.position - 1])
        assert step.fvu == pytest.approx(unexplained[step.position], rel=1e-3)


def test_greedy_tokens_are_the_argmax_of_one_full_forward_pass(engine: Engine) -> None:
    prompt = engine.prepare(user(LONG))
    steps = list(engine.generate(prompt, Sampling(max_tokens=6, temperature=0)))
    ids = prompt.ids + [step.token_id for step in steps]
    assert isinstance(engine.backend, TorchBackend)
    with torch.inference_mode():
        logits = engine.backend.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    assert [step.token_id for step in steps] == logits.argmax(-1)[len(prompt.ids) - 1 : -1].tolist()


def test_encode_gives_every_position_of_the_prompt(engine: Engine) -> None:
    prompt = engine.prepare(user(LONG))
    tokens = engine.encode(prompt)
    acts, unexplained = full_pass(engine, prompt.ids)
    assert [token.token_id for token in tokens] == prompt.ids
    assert [token.content for token in tokens] == prompt.content
    rendered = engine.chat.tokenizer.decode(prompt.ids, skip_special_tokens=False)
    assert "".join(token.text for token in tokens) == rendered
    for token, expected, value in zip(tokens, acts, unexplained, strict=True):
        assert_same_features(token.acts, expected)
        assert token.fvu == pytest.approx(value, rel=1e-3)


def test_a_text_is_a_prompt_too(tiny_engine: Engine) -> None:
    prompt = tiny_engine.prepare("the user")
    assert prompt == tiny_engine.chat.encode_text("the user")
    assert len(list(tiny_engine.generate(prompt, SAMPLED))) == 12


def test_without_a_decoder_there_is_no_fvu(tiny_gemma: Tiny, tiny_sae: SparseAutoencoder) -> None:
    model, tokenizer = tiny_gemma
    backend = TorchBackend(model, tokenizer, TINY_LAYER)
    engine = Engine(backend, tiny_sae, ChatTokenizer(tokenizer), decoder=False)
    assert {step.fvu for step in engine.generate(engine.prepare("hi"), SAMPLED)} == {None}
    assert {token.fvu for token in engine.encode(engine.prepare("hi"))} == {None}


def comparable(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    return [
        (step.token_id, step.text, step.acts.indices.tolist(), step.acts.values.tolist()) for step in steps
    ]


def test_the_same_seed_gives_the_same_answer_with_and_without_a_cached_beginning(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = comparable(list(engine.generate(engine.prepare(user(LONG)), SAMPLED)))
    list(engine.generate(engine.prepare(user(LONG + "and more")), SAMPLED))
    ran: list[int] = []
    forward = engine.backend.forward
    monkeypatch.setattr(engine.backend, "forward", lambda ids: (ran.append(len(ids)), forward(ids))[1])
    again = comparable(list(engine.generate(engine.prepare(user(LONG)), SAMPLED)))
    assert again == fresh
    prompt_length = len(engine.prepare(user(LONG)).ids)
    assert ran[0] == (prompt_length - 1) % PREFILL_CELL + 1 or ran[0] == PREFILL_CELL
    assert sum(ran[: -len(again)]) < prompt_length


def test_two_talks_in_turn_get_the_answers_of_an_engine_that_reuses_nothing(engine: Engine) -> None:
    whole = Engine(engine.backend, engine.sae, engine.chat, prefix_cache_mb=0)
    one, other = [user(LONG)], [user("the " + LONG)]
    asked = []
    for _ in range(2):
        asked += [talk[-1] for talk in (one, other, one)]
        for talk in (one, other):
            talk.append([*talk[-1], {"role": "assistant", "content": "goodbye"}, *user("and the user said")])
    expected = [comparable(list(whole.generate(whole.prepare(talk), SAMPLED))) for talk in asked]
    assert whole.reused_tokens == 0
    found, reused = [], []
    for talk in asked:
        found.append(comparable(list(engine.generate(engine.prepare(talk), SAMPLED))))
        reused.append(engine.reused_tokens)
    assert found == expected
    assert reused[:2] == [0, 0]
    length = [len(engine.prepare(talk).ids) for talk in asked]
    assert reused[2] == (length[0] - 1) // PREFILL_CELL * PREFILL_CELL
    assert all(tokens >= length[0] // PREFILL_CELL * PREFILL_CELL for tokens in reused[3:])


def readings(tokens: Sequence[EncodedToken]) -> list[tuple[Any, ...]]:
    return [
        (t.token_id, t.text, t.content, t.acts.indices.tolist(), t.acts.values.tolist(), t.fvu)
        for t in tokens
    ]


def test_encode_uses_what_a_generation_ran_and_the_other_way_round(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = engine.prepare(user(LONG))
    fresh = readings(engine.encode(prompt))
    steps = comparable(list(engine.generate(prompt, SAMPLED)))
    assert engine.reused_tokens >= PREFILL_CELL
    list(engine.generate(engine.prepare("another"), SAMPLED))
    monkeypatch.setattr(engine, "_prefill", Prefill(engine.backend, PrefixStore(10**9)))
    assert comparable(list(engine.generate(prompt, SAMPLED))) == steps
    assert engine.reused_tokens == 0
    assert readings(engine.encode(prompt)) == fresh
    assert engine.reused_tokens == (len(prompt.ids) - 1) // PREFILL_CELL * PREFILL_CELL


def cells_and_steps(items: Iterable[PromptCell | Step]) -> tuple[list[PromptCell], list[Step]]:
    """The items of a generation, its prompt's before its answer's."""
    listed = list(items)
    cells = [item for item in listed if isinstance(item, PromptCell)]
    steps = [item for item in listed if isinstance(item, Step)]
    assert listed == [*cells, *steps]
    return cells, steps


@pytest.mark.parametrize("text", ["hi", LONG, "🧿" * 40])
def test_a_prompts_features_come_cell_by_cell_before_the_answer(engine: Engine, text: str) -> None:
    prompt = engine.prepare(user(text))
    plain = comparable(list(engine.generate(prompt, SAMPLED)))
    acts, unexplained = full_pass(engine, prompt.ids)
    for kind in ("reused, never encoded", "reused, encoded before", "run anew"):
        if kind == "run anew":
            engine = Engine(engine.backend, engine.sae, engine.chat)
        cells, steps = cells_and_steps(engine.generate(prompt, SAMPLED, prompt_features=True))
        assert comparable(steps) == plain
        assert [cell.start for cell in cells] == list(range(0, len(prompt.ids), PREFILL_CELL))
        tokens = [token for cell in cells for token in cell.tokens]
        assert [token.token_id for token in tokens] == prompt.ids
        assert [token.content for token in tokens] == prompt.content
        assert "".join(t.text for t in tokens) == engine.chat.tokenizer.decode(prompt.ids)
        for token, expected, value in zip(tokens, acts, unexplained, strict=True):
            assert_same_features(token.acts, expected)
            assert token.fvu == pytest.approx(value, rel=1e-3)
        assert cells[0].before is None
        for cell, after in pairwise(cells):
            assert after.before is cell.tokens[-1].acts
        assert_same_features(steps[0].producer, tokens[-1].acts)


def test_a_prompts_features_come_while_it_runs(tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tiny_engine.chat.encode_text("x" * 200).ids[:150]
    ran: list[int] = []
    forward = tiny_engine.backend.forward
    monkeypatch.setattr(tiny_engine.backend, "forward", lambda ids: (ran.append(len(ids)), forward(ids))[1])
    asked = iter([False, False, True])
    items = tiny_engine.generate(
        Prompt(ids, [True] * 150), SAMPLED, should_stop=lambda: next(asked), prompt_features=True
    )
    for sizes in ([64], [64, 64]):
        cell = next(items)
        assert isinstance(cell, PromptCell)
        assert (len(cell.tokens), ran) == (64, sizes)
    assert next(items, None) is None


def test_features_of_a_prompt_that_nobody_asked_for_are_not_encoded(
    tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    reader = tiny_engine._reader
    read = reader.read
    monkeypatch.setattr(reader, "read", lambda x: (rows.append(len(x)), read(x))[1])
    prompt = tiny_engine.prepare(user(LONG))
    steps = list(tiny_engine.generate(prompt, SAMPLED))
    assert rows == [1] * (len(steps) + 1)
    rows.clear()
    for _ in range(2):
        list(tiny_engine.generate(prompt, SAMPLED, prompt_features=True))
    rest = len(prompt.ids) % PREFILL_CELL
    whole = len(prompt.ids) // PREFILL_CELL
    answer = [1] * (len(steps) + 1)
    assert rows == [*[PREFILL_CELL] * whole, rest, *answer, rest, *answer], "those kept are encoded once"


def test_a_prompt_that_another_interrupts_says_so(tiny_engine: Engine) -> None:
    items = tiny_engine.generate(tiny_engine.prepare(user(LONG)), SAMPLED, prompt_features=True)
    next(items)
    tiny_engine.encode(tiny_engine.prepare("hi"))
    with pytest.raises(ModelError, match="Another prompt ran on this engine"):
        list(items)


def test_prompts_run_on_a_fixed_grid_and_stop_between_cells(
    tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tiny_engine.chat.encode_text("x" * 200).ids[:150]
    ran: list[int] = []
    forward = tiny_engine.backend.forward
    monkeypatch.setattr(tiny_engine.backend, "forward", lambda ids: (ran.append(len(ids)), forward(ids))[1])
    asked = iter([False, False, True])
    prompt = Prompt(ids, [True] * 150)
    assert list(tiny_engine.generate(prompt, SAMPLED, should_stop=lambda: next(asked))) == []
    assert ran == [64, 64]
    next(tiny_engine.generate(prompt, SAMPLED))
    assert ran == [64, 64, 22, 1]


def test_should_stop_ends_at_the_next_token(tiny_engine: Engine) -> None:
    prompt = tiny_engine.prepare(user("hi"))
    asked = iter([False, False, False, True])  # the prompt's one cell, then three tokens
    steps = list(tiny_engine.generate(prompt, SAMPLED, should_stop=lambda: next(asked)))
    assert [step.finish_reason for step in steps] == [None, None, "cancelled"]


def test_an_abandoned_generation_leaves_the_engine_ready(tiny_engine: Engine) -> None:
    expected = comparable(list(tiny_engine.generate(tiny_engine.prepare(user("hello")), SAMPLED)))
    for _ in range(5):
        steps = tiny_engine.generate(tiny_engine.prepare(user(LONG)), SAMPLED)
        next(steps)
        next(steps)
        steps.close()  # type: ignore[attr-defined]
        again = list(tiny_engine.generate(tiny_engine.prepare(user("hello")), SAMPLED))
        assert comparable(again) == expected


@pytest.mark.parametrize("failing", [1, 2, 5])
def test_an_exception_in_the_forward_pass_leaves_the_engine_ready(
    tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """It comes from inside the model, when some layers have cached the new positions and others have not."""
    assert isinstance(tiny_engine.backend, TorchBackend)
    prompt = tiny_engine.prepare(user(LONG))
    expected = comparable(list(tiny_engine.generate(prompt, SAMPLED)))
    last_layer = tiny_engine.backend.model.model.layers[-1]
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == failing:
            raise RuntimeError("out of memory")

    handle = last_layer.register_forward_pre_hook(fail)
    other = tiny_engine.prepare(user("the " + LONG))
    with pytest.raises(RuntimeError, match="out of memory"):
        list(tiny_engine.generate(other, SAMPLED))
    handle.remove()
    assert comparable(list(tiny_engine.generate(prompt, SAMPLED))) == expected


def test_a_generation_that_another_prompt_interrupts_says_so(tiny_engine: Engine) -> None:
    prompt = tiny_engine.prepare(user("hi"))
    first = tiny_engine.generate(prompt, SAMPLED)
    next(first)
    tiny_engine.encode(prompt)
    with pytest.raises(ModelError, match="Another prompt ran on this engine"):
        next(first)


def test_inference_mode_does_not_leak_out_of_a_generation(tiny_engine: Engine) -> None:
    for _ in tiny_engine.generate(tiny_engine.prepare(user("hi")), Sampling(max_tokens=2)):
        assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("used", "max_tokens", "fits"),
    [
        (500, 12, True),
        (500, 13, False),
        (CONTEXT, None, False),
        (CONTEXT - 1, None, True),
        (CONTEXT, 1, False),
    ],
)
def test_prompt_and_answer_must_fit_the_context(
    tiny_engine: Engine, used: int, max_tokens: int | None, fits: bool
) -> None:
    prompt = Prompt([40] * used, [True] * used)
    if fits:
        assert next(tiny_engine.generate(prompt, Sampling(max_tokens=max_tokens, temperature=0)))
        return
    with pytest.raises(
        ContextOverflowError, match=f"context length is {CONTEXT} tokens and the prompt has {used}"
    ):
        tiny_engine.generate(prompt, Sampling(max_tokens=max_tokens))


def test_what_cannot_begin_is_refused_before_the_first_step(tiny_engine: Engine) -> None:
    with pytest.raises(PromptError, match="prompt is empty"):
        tiny_engine.generate(Prompt([], []), SAMPLED)
    with pytest.raises(PromptError, match="logit_bias names token 9999"):
        tiny_engine.generate(tiny_engine.prepare("hi"), Sampling(logit_bias={9999: 1.0}))


def test_an_sae_of_another_width_is_refused(tiny_gemma: Tiny) -> None:
    model, tokenizer = tiny_gemma
    sae = SparseAutoencoder(torch.zeros(48, 8), torch.zeros(8), torch.zeros(8))
    with pytest.raises(ModelError, match=f"reads residuals of 48 dimensions, the model's have {D_MODEL}"):
        Engine(TorchBackend(model, tokenizer, TINY_LAYER), sae, ChatTokenizer(tokenizer))


# --- with a backend that says what it is told: text, stop strings and the end of turn ---


@dataclass
class Scripted:
    """A backend whose next token is the script's; position p's residual is p + 1 in every dimension."""

    script: list[int]
    vocabulary: int
    context_length: int = CONTEXT
    d_model: int = D_MODEL
    layer: int = TINY_LAYER
    said: Iterator[int] = field(init=False)
    length: int = 0

    def __post_init__(self) -> None:
        self.said = iter(self.script)

    def forward(self, ids: Sequence[int]) -> Forward:
        logits = torch.zeros(self.vocabulary)
        logits[next(self.said, 40)] = 50.0
        rows = torch.arange(self.length + 1, self.length + len(ids) + 1, dtype=torch.float32)
        self.length += len(ids)
        return Forward(logits, rows[:, None].expand(-1, self.d_model))

    def rewind(self, length: int) -> int:
        self.length = 0
        return 0

    def take(self, start: int, stop: int) -> None:
        return None

    def restore(self, saved: Sequence[Any]) -> None:
        raise AssertionError("nothing was taken")


Say = Callable[..., list[Step]]


@pytest.fixture
def say(tiny_gemma: Tiny, tiny_sae: SparseAutoencoder) -> Say:
    """The steps of a generation that says a text (or token ids), then the end of turn."""
    chat = ChatTokenizer(tiny_gemma[1])
    end = chat.tokenizer.convert_tokens_to_ids("<end_of_turn>")

    def saying(text: str | list[int], **sampling: Any) -> list[Step]:
        ids = chat.encode_text(text, bos=False).ids if isinstance(text, str) else text
        backend = Scripted([*ids, end], chat.vocabulary)
        engine = Engine(backend, tiny_sae, chat)
        return list(engine.generate(chat.encode_text("x"), Sampling(temperature=0, **sampling)))

    return saying


def text_of(steps: list[Step]) -> str:
    return "".join(step.text for step in steps)


@pytest.mark.parametrize(
    "text", ["Hello", "  two spaces", "\n    indented\n\n", "👩‍👩‍👧‍👦 家族 naïve", "a\x00b", "\ufffd"]
)
def test_the_answer_is_what_was_said_and_ends_with_the_end_of_turn(say: Say, text: str) -> None:
    steps = say(text)
    assert text_of(steps) == text
    assert [step.finish_reason for step in steps] == [None] * (len(steps) - 1) + ["stop"]
    assert [step.is_end for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1].text == ""
    assert steps[-1].token_bytes == b"<end_of_turn>"
    assert b"".join(step.token_bytes for step in steps[:-1]).decode() == text
    assert all("\ufffd" not in step.text for step in steps) or "\ufffd" in text


def test_the_token_that_completes_a_character_carries_it(say: Say) -> None:
    assert [step.text for step in say("a🧿")] == ["a", "", "", "", "🧿", ""]


@pytest.mark.parametrize("limit", [None, 3])
def test_incomplete_bytes_at_the_end_are_one_replacement_character(say: Say, limit: int | None) -> None:
    emoji = [step.token_id for step in say("🧿")][:-1]
    steps = say(emoji[:3], max_tokens=limit)
    assert text_of(steps) == "\ufffd"
    assert [step.text for step in steps][:3] == ["", "", "\ufffd"]
    assert [step.token_index for step in steps] == list(range(len(steps)))
    assert steps[-1].finish_reason == ("length" if limit else "stop")


@pytest.mark.parametrize(
    ("stop", "answer"),
    [
        (("###",), "one two"),
        (("two", "zzz"), "one "),
        (("one two###",), ""),
        (("#!",), "one two###end"),
        (("###endless",), "one two###end"),
        ((), "one two###end"),
        (("",), "one two###end"),
    ],
)
def test_a_stop_string_and_what_follows_is_cut_and_all_before_it_kept(
    say: Say, stop: tuple[str, ...], answer: str
) -> None:
    steps = say("one two###end", stop=stop)
    assert text_of(steps) == answer
    assert steps[-1].finish_reason == "stop"
    assert [step.token_index for step in steps] == list(range(len(steps)))
    assert steps[-1].is_end == (answer == "one two###end")


def test_tokens_inside_a_stop_string_are_steps_without_text(say: Say) -> None:
    steps = say("a###b", stop=("###",))
    assert [step.text for step in steps] == ["a", "", "", ""]


def test_a_stop_string_cut_off_by_the_token_limit_is_text(say: Say) -> None:
    steps = say("a###", stop=("###",), max_tokens=3)
    assert [step.text for step in steps] == ["a", "#", "#"]
    assert steps[-1].finish_reason == "length"


def test_a_stop_string_on_the_last_token_is_a_stop(say: Say) -> None:
    assert [step.finish_reason for step in say("a#", stop=("#",), max_tokens=2)] == [None, "stop"]


@pytest.mark.parametrize("limit", [1, 2])
def test_the_token_limit_counts_sampled_tokens(say: Say, limit: int) -> None:
    steps = say("abc", max_tokens=limit)
    assert text_of(steps) == "abc"[:limit]
    assert [step.finish_reason for step in steps] == [None] * (limit - 1) + ["length"]


def test_features_belong_to_the_token_even_when_its_step_waits(say: Say, tiny_sae: SparseAutoencoder) -> None:
    """The residual at position p is p + 1 throughout, so a step that waits must keep its own features."""

    def values_at(position: int) -> list[float]:
        residual = torch.full((1, D_MODEL), position + 1.0)
        values: list[float] = sparse(tiny_sae.encode(residual))[0].values.tolist()
        return values

    for stop in ((), ("ab?",)):
        for step in say("abab", stop=stop):
            assert step.position == 2 + step.token_index
            assert step.acts.values.tolist() == pytest.approx(values_at(step.position))
            assert step.producer.values.tolist() == pytest.approx(values_at(step.position - 1))


def test_log_probabilities_come_with_bytes(say: Say) -> None:
    step = say("a", logprobs=True, top_logprobs=2)[0]
    assert step.logprob == pytest.approx(0.0, abs=1e-6)
    assert len(step.top_logprobs) == 2
    best = step.top_logprobs[0]
    assert (best.token_id, best.text, best.logprob) == (step.token_id, b"a", step.logprob)
    assert say("a")[0].top_logprobs == ()


class Broken(Scripted):
    def forward(self, ids: Sequence[int]) -> Forward:
        return Forward(torch.zeros(self.vocabulary), torch.full((len(ids), self.d_model), torch.inf))


def test_a_residual_that_is_not_finite_never_becomes_a_feature(
    tiny_gemma: Tiny, tiny_sae: SparseAutoencoder
) -> None:
    chat = ChatTokenizer(tiny_gemma[1])
    engine = Engine(Broken([], chat.vocabulary), tiny_sae, chat)
    with pytest.raises(ModelError, match="residual stream is not finite"):
        next(engine.generate(chat.encode_text("x"), SAMPLED))
