"""Choosing among rules: what is found in one half of the examples must hold in the other."""

from __future__ import annotations

import numpy as np
import pytest

from autointerp.emulated import NUMBER, Sweep
from neuroscope.autointerp import patterns
from neuroscope.autointerp.background import Background
from neuroscope.autointerp.case import Case, read_tokens
from neuroscope.autointerp.choice import always_on, best_candidate, commonest, exact, judged, narrowed
from neuroscope.autointerp.evidence import ExampleTable, PoolSide
from neuroscope.autointerp.rules import Rule, marks
from neuroscope.autointerp.words import Vocabulary


@pytest.fixture(scope="module")
def background(emulated_sweep: Sweep) -> Background:
    side = PoolSide.read(emulated_sweep.pool, labelling=True)
    return Background(side, Vocabulary(emulated_sweep.world.text))


def case_of(sweep: Sweep, background: Background, name: str) -> Case:
    examples = ExampleTable.read(sweep.examples, "top", 20).of(NUMBER[name])
    tokens = read_tokens(background, examples)
    return Case(background, tokens, [1 / len(tokens)] * len(tokens), background.negatives(NUMBER[name]))


def test_words_that_only_one_half_shows_cover_nothing_of_the_other(
    emulated_sweep: Sweep, background: Background
) -> None:
    paris, code = (case_of(emulated_sweep, background, name).tokens for name in ("paris", "self"))
    tokens = [token for pair in zip(paris[:6], code[:6], strict=True) for token in pair]
    everywhere = background.negatives(NUMBER["paris"]) & background.negatives(NUMBER["self"])
    case = Case(background, tokens, [1 / 12] * 12, everywhere)
    candidate = judged(case, patterns.find_words)
    assert candidate is not None
    assert set(candidate.rule.items) == {"Paris", "self"}
    assert case.coverage(candidate.rule) == pytest.approx(1.0)
    assert candidate.coverage == 0.0


def test_a_candidate_says_how_common_its_rule_is_where_the_feature_is_silent(
    emulated_sweep: Sweep, background: Background
) -> None:
    case = case_of(emulated_sweep, background, "university of")
    candidate = exact(case, Rule("word", ("of",)))
    found = marks(Rule("word", ("of",)), background.words).any(1)
    silent = np.ones(background.size, bool)
    silent[background.pool.active(NUMBER["university of"])] = False
    assert candidate.coverage == pytest.approx(1.0)
    assert candidate.false_rate == pytest.approx(found[silent].mean())
    assert candidate.false_rate > 0.3


def test_a_frequent_word_is_narrowed_by_what_stands_before_it(
    emulated_sweep: Sweep, background: Background
) -> None:
    case = case_of(emulated_sweep, background, "university of")
    words = exact(case, Rule("word", ("of",)))
    better = max(narrowed(case, words), key=lambda candidate: candidate.score)
    assert better.rule == Rule("word", ("of",), also=Rule("after", ("University",)))
    assert better.score > words.score
    assert better.false_rate < 0.01


def test_a_rule_that_is_right_already_is_not_narrowed(emulated_sweep: Sweep, background: Background) -> None:
    case = case_of(emulated_sweep, background, "paris")
    assert list(narrowed(case, exact(case, Rule("word", ("Paris",))))) == []


def test_the_simpler_of_two_equal_rules_is_chosen(emulated_sweep: Sweep, background: Background) -> None:
    best = best_candidate(case_of(emulated_sweep, background, "copenhagen"))
    assert best is not None
    assert best.rule == Rule("word", ("Copenhagen",))


def test_no_examples_no_candidate(background: Background) -> None:
    assert best_candidate(Case(background, [], [], 0)) is None


def test_the_last_resorts_are_true_of_the_examples(emulated_sweep: Sweep, background: Background) -> None:
    case = case_of(emulated_sweep, background, "royals")
    assert set(commonest(case).rule.items) == {"king", "queen", "emperor"}
    assert commonest(case).coverage == pytest.approx(1.0)
    assert always_on(case).coverage == pytest.approx(1.0)
    assert always_on(case).false_rate == 1.0
