"""Examples word by word."""

from __future__ import annotations

import numpy as np
import pytest

from autointerp.emulated import FEATURES, NUMBER, Sweep
from neuroscope.autointerp.background import Background
from neuroscope.autointerp.case import Case, cover, log_odds, read_tokens, specific
from neuroscope.autointerp.evidence import Examples, ExampleTable, PoolSide
from neuroscope.autointerp.rules import Rule, marks
from neuroscope.autointerp.words import Vocabulary


@pytest.fixture(scope="module")
def background(emulated_sweep: Sweep) -> Background:
    side = PoolSide.read(emulated_sweep.pool, labelling=True)
    return Background(side, Vocabulary(emulated_sweep.world.text))


def examples_of(sweep: Sweep, name: str) -> Examples:
    return ExampleTable.read(sweep.examples, "top", 20).of(NUMBER[name])


RULES = [
    Rule("any"),
    Rule("word", ("Paris", "of", "self", "May")),
    Rule("word", ("May", "The"), cased=True),
    Rule("piece", ("ism", "cop")),
    Rule("prefix", ("rea", "emp")),
    Rule("suffix", ("ism", "or")),
    Rule("after", ("of", ".", "the")),
    Rule("before", ("of", "University")),
    Rule("context", ("acid", "reaction", "molecule", "king")),
    Rule("context", ("acid", "reaction", "molecule", "solvent"), at_least=2),
    *(
        Rule("class", (name,))
        for name in ("numbers", "code", "first words of sentences", "capitalised names")
    ),
    Rule("word", ("of",), also=Rule("after", ("University",))),
]


@pytest.mark.parametrize("rule", RULES, ids=Rule.to_json)
def test_a_rule_covers_the_examples_whose_token_it_marks(
    emulated_sweep: Sweep, background: Background, rule: Rule
) -> None:
    """The oracle: `marks`, which the detector uses, at the activating token."""
    for name in FEATURES:
        examples = examples_of(emulated_sweep, name)
        tokens = read_tokens(background, examples)
        case = Case(background, tokens, [1.0] * len(tokens), 0)
        words = background.words.vocabulary.read(examples.windows)
        expected = marks(rule, words)[np.arange(len(examples)), examples.at]
        assert case.covered(rule) == expected.tolist()


def test_coverage_is_by_weight(emulated_sweep: Sweep, background: Background) -> None:
    examples = Examples.joined(
        examples_of(emulated_sweep, "paris").take([0]), examples_of(emulated_sweep, "ism").take([0])
    )
    case = Case(background, read_tokens(background, examples), [0.9, 0.1], 0)
    assert case.coverage(Rule("word", ("paris",))) == 0.9
    assert case.take([1]).coverage(Rule("suffix", ("ism",))) == 1.0


def test_log_odds_prefer_the_specific_to_the_frequent() -> None:
    rare = log_odds(share=0.3, effective=50, count=2, total=50_000)
    common = log_odds(share=0.4, effective=50, count=3_000, total=50_000)
    usual = log_odds(share=0.06, effective=50, count=3_000, total=50_000)
    assert rare > common > usual
    assert abs(usual) < 0.1
    assert specific({1: 0.3, 2: 0.4, 3: 0.06}, 50, {1: 2, 2: 3_000, 3: 3_000}, 50_000) == [1, 2]


def test_cover_takes_what_adds_most_and_leaves_what_silent_windows_are_full_of(
    background: Background,
) -> None:
    everything = (1 << background.size) - 1
    case = Case(background, [], [0.25] * 4, everything)
    carriers = {1: frozenset({0, 1}), 2: frozenset({2}), 3: frozenset({3}), 4: frozenset({0})}
    assert cover(case, carriers, {3: everything}, {}) == [1, 2]
