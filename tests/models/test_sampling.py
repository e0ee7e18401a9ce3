"""Sampling parameters as OpenAI's clients mean them, on logits whose probabilities are known."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from neuroscope.errors import ModelError, PromptError
from neuroscope.models.sampling import Sampler, Sampling

PROBABILITIES = [0.5, 0.25, 0.125, 0.125]
LOGITS = torch.tensor(PROBABILITIES).log()


def drawn(count: int, **sampling: Any) -> Counter[int]:
    sampler = Sampler(Sampling(**{"seed": 0, **sampling}), 4)
    return Counter(sampler.choose(LOGITS).token for _ in range(count))


@pytest.mark.parametrize("temperature", [0.0, 1e-9])
def test_a_temperature_next_to_nothing_is_greedy(temperature: float) -> None:
    assert drawn(20, temperature=temperature) == {0: 20}


def test_tokens_are_drawn_by_their_probability() -> None:
    counts = drawn(4000)
    for token, probability in enumerate(PROBABILITIES):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


def test_temperature_two_takes_the_square_root_of_the_odds() -> None:
    counts = drawn(4000, temperature=2.0)
    assert counts[0] / counts[1] == pytest.approx(math.sqrt(2), rel=0.1)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, {0}), (0.5, {0}), (0.51, {0, 1}), (0.75, {0, 1}), (0.99, {0, 1, 2, 3})]
)
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: set[int]) -> None:
    assert set(drawn(200, top_p=top_p)) == kept


def test_top_p_looks_past_its_first_candidates_when_they_do_not_suffice() -> None:
    flat = torch.zeros(4000)
    sampler = Sampler(Sampling(seed=0, top_p=0.9), 4000)
    assert len({sampler.choose(flat).token for _ in range(2500)}) > 1100


def test_the_same_seed_draws_the_same_tokens() -> None:
    def run(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(seed=seed), 4)
        torch.rand(3)  # other users of torch's own generator change nothing
        return [sampler.choose(LOGITS).token for _ in range(50)]

    assert run(7) == run(7)
    assert run(7) != run(8)
    assert run(-1) == run(-1)
    assert run(None) != run(None)


def test_penalties_lower_what_was_chosen_before() -> None:
    sampler = Sampler(Sampling(temperature=0, presence_penalty=0.1, frequency_penalty=0.3), 3)
    logits = torch.tensor([1.0, 0.5, 0.0])
    # token 0 at 1.0, 0.6 (- 0.1 - 0.3), 0.3 (- 0.1 - 0.6); token 1 at 0.5, then 0.1
    assert [sampler.choose(logits).token for _ in range(4)] == [0, 0, 1, 0]
    assert logits.tolist() == [1.0, 0.5, 0.0]


def test_logit_bias_bans_and_forces() -> None:
    assert drawn(50, logit_bias={0: -100, 1: -100}).keys() <= {2, 3}
    assert drawn(50, logit_bias={3: 100}) == {3: 50}


@pytest.mark.parametrize("token", [4, -1])
def test_logit_bias_on_a_token_that_is_not_there_is_refused(token: int) -> None:
    with pytest.raises(PromptError, match=f"logit_bias names token {token}; this model's are 0 to 3"):
        Sampler(Sampling(logit_bias={token: 1.0}), 4)


def test_log_probabilities_ignore_the_temperature() -> None:
    sampler = Sampler(Sampling(temperature=0.01, seed=0, logprobs=True, top_logprobs=2), 4)
    choice = sampler.choose(LOGITS)
    assert choice.token == 0
    assert choice.logprob == pytest.approx(math.log(0.5))
    assert [token for token, _ in choice.top] == [0, 1]
    assert [value for _, value in choice.top] == pytest.approx([math.log(0.5), math.log(0.25)])


def test_log_probabilities_are_of_the_biased_distribution() -> None:
    sampler = Sampler(Sampling(temperature=0, logprobs=True, logit_bias={0: -1000}), 4)
    choice = sampler.choose(LOGITS)
    assert (choice.token, choice.top) == (1, ())
    assert choice.logprob == pytest.approx(math.log(0.5))


def test_more_alternatives_than_tokens_are_all_tokens() -> None:
    sampler = Sampler(Sampling(logprobs=True, top_logprobs=20), 4)
    assert len(sampler.choose(LOGITS).top) == 4


def test_no_log_probabilities_unless_asked() -> None:
    assert Sampler(Sampling(temperature=0), 4).choose(LOGITS) == (0, None, ())


def test_the_best_alone_is_found_where_the_logits_are() -> None:
    """The first of equals, as with everything else that is asked for; also beyond what float16 counts to."""
    logits = torch.zeros(300_000)
    logits[262_143] = logits[270_001] = 5
    alone, with_more = (
        Sampler(Sampling(temperature=0, logprobs=more), len(logits)) for more in (False, True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cpu", None)
        assert alone.choose(logits).token == 262_143
    assert with_more.choose(logits).token == 262_143


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_an_error(bad: float) -> None:
    with pytest.raises(ModelError, match="not finite"):
        Sampler(Sampling(temperature=0), 4).choose(torch.tensor([0.0, bad, 0.0, 0.0]))
