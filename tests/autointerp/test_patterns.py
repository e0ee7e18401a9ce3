"""Finders: each proposes the best rule of its kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autointerp.emulated import NUMBER, TOPICS, Sweep
from neuroscope.autointerp import patterns
from neuroscope.autointerp.background import Background
from neuroscope.autointerp.case import Case, Found, read_tokens
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


@pytest.mark.parametrize(
    ("feature", "finder", "rule"),
    [
        ("paris", patterns.find_words, Rule("word", ("Paris",))),
        ("May", patterns.find_words, Rule("word", ("May",), cased=True)),
        ("ism", patterns.find_pieces, Rule("piece", ("ism",))),
        ("ism", patterns.find_suffix, Rule("suffix", ("ism",))),
        ("digits", patterns.find_class, Rule("class", ("numbers",))),
        ("indentation", patterns.find_code, Rule("class", ("code",))),
        ("sentence start", patterns.find_sentence_start, Rule("class", ("first words of sentences",))),
        ("after of", patterns.find_previous, Rule("after", ("of",))),
        ("before of", patterns.find_next, Rule("before", ("of",))),
        ("paris", patterns.find_pieces, None),
        ("paris", patterns.find_suffix, None),
        ("paris", patterns.find_code, None),
    ],
)
def test_a_finder_finds_the_pattern_of_its_kind(
    emulated_sweep: Sweep,
    background: Background,
    feature: str,
    finder: patterns.Finder,
    rule: Rule | None,
) -> None:
    found = finder(case_of(emulated_sweep, background, feature))
    assert (None if found is None else found.rule) == rule


def test_the_next_word_is_said_when_the_feature_promotes_it(
    emulated_sweep: Sweep, background: Background
) -> None:
    case = case_of(emulated_sweep, background, "before of")
    of = background.words.vocabulary.find("of")
    found = patterns.find_next(replace(case, promoted=frozenset({of})))
    assert found is not None
    assert found.rule == Rule("before", ("of",), predicted=True)


def test_a_context_is_made_of_the_topics_words_and_not_of_the_token(
    emulated_sweep: Sweep, background: Background
) -> None:
    found = patterns.find_context(case_of(emulated_sweep, background, "chemistry"))
    assert found is not None
    assert set(found.rule.items) <= set(TOPICS["chemistry"])
    silent = case_of(emulated_sweep, background, "paris")
    topic = patterns.find_context(silent)
    assert topic is None or "Paris" not in topic.rule.items


@pytest.mark.parametrize(
    "finder",
    [
        patterns.find_words,
        patterns.find_class,
        patterns.find_suffix,
        patterns.find_pieces,
        patterns.find_context,
    ],
)
def test_a_finder_knows_how_common_its_rule_is(
    emulated_sweep: Sweep, background: Background, finder: patterns.Finder
) -> None:
    """The oracle: check the rule in every background window."""
    seen = 0
    for feature in NUMBER:
        if feature == "dead":
            continue
        found: Found | None = finder(case_of(emulated_sweep, background, feature))
        if found is None:
            continue
        seen += 1
        assert found.windows == background.windows_of_rule(found.rule)
        if found.rule.kind != "context":
            rate = marks(found.rule, background.words).sum() / background.n_tokens
            assert found.token_rate == pytest.approx(rate)
    assert seen
