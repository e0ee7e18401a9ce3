"""Ordinary text as bitsets, against looking at every window."""

from __future__ import annotations

import numpy as np
import pytest

from autointerp.emulated import NUMBER, Sweep
from neuroscope.autointerp.background import Background, at_least_two, bitset, members, union
from neuroscope.autointerp.classes import CLASSES
from neuroscope.autointerp.evidence import PoolSide
from neuroscope.autointerp.rules import Rule, marks
from neuroscope.autointerp.words import Vocabulary


@pytest.fixture(scope="module")
def background(emulated_sweep: Sweep) -> Background:
    side = PoolSide.read(emulated_sweep.pool, labelling=True)
    return Background(side, Vocabulary(emulated_sweep.world.text))


def test_a_bitset_gives_back_its_rows() -> None:
    assert members(bitset([0, 3, 64], 65), 65).tolist() == [0, 3, 64]
    assert members(bitset([], 7), 7).tolist() == []
    assert union([0b01, 0b10]) == 0b11
    assert at_least_two([0b011, 0b110, 0b010]) == 0b010


@pytest.mark.parametrize("word", ["paris", "of", "the", "1", "buddhism"])
def test_postings_agree_with_the_rule_checked_everywhere(background: Background, word: str) -> None:
    found = marks(Rule("word", (word,)), background.words)
    number = background.words.vocabulary.find(word)
    assert (
        members(background.windows_of.get(number, 0), background.size).tolist()
        == np.flatnonzero(found.any(1)).tolist()
    )
    assert background.count_of.get(number, 0) == found.sum()


def test_pieces_affixes_and_classes_agree_with_the_rule_checked_everywhere(background: Background) -> None:
    number = background.words.vocabulary.find("ism")
    assert background.windows_of_piece[number] == background.windows_of_rule(Rule("piece", ("ism",)))
    for kind, affix in (("suffix", "ism"), ("suffix", "ed"), ("prefix", "rea")):
        rule = Rule(kind, (affix,))
        assert background.windows_of_affix(kind, affix) == background.windows_of_rule(rule)
        rate = marks(rule, background.words).sum() / background.n_tokens
        assert background.rate_of_affix(kind, affix) == pytest.approx(rate)
    for name in CLASSES:
        assert background.windows_of_class[name] == background.windows_of_rule(Rule("class", (name,)))


def test_negatives_are_the_windows_where_the_feature_is_silent(background: Background) -> None:
    negatives = background.negatives(NUMBER["paris"])
    active = background.pool.active(NUMBER["paris"])
    assert negatives.bit_count() == background.size - len(active)
    paris = background.windows_of[background.words.vocabulary.find("paris")]
    assert paris & negatives == 0
    assert background.false_rate(paris, negatives, 0.9) == 0.0


def test_without_enough_silent_windows_a_pattern_is_judged_by_tokens(background: Background) -> None:
    assert background.false_rate(0b111, 0b1, token_rate=0.25) == 0.25


def test_words_are_spelled_as_text_mostly_writes_them(background: Background) -> None:
    find = background.words.vocabulary.find
    assert [background.spelled(find(word)) for word in ("paris", "of", "university")] == [
        "Paris",
        "of",
        "University",
    ]
