"""Rules as the text of labels."""

from __future__ import annotations

import random

import pytest

from neuroscope.autointerp.classes import CLASSES
from neuroscope.autointerp.describe import describe, fitting, is_topic
from neuroscope.autointerp.rules import Rule
from neuroscope.labels import refusal


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        (Rule("word", ("Paris",)), '"Paris"'),
        (Rule("word", ("king", "queen", "emperor")), '"king", "queen", "emperor"'),
        (Rule("word", ("king", "kings", "queen")), '"king(s)", "queen"'),
        (Rule("word", ("kings", "king")), '"king(s)"'),
        (Rule("word", ("May",), cased=True), '"May" (capitalised)'),
        (Rule("word", ("US", "UN"), cased=True), '"US", "UN" (in capitals)'),
        (Rule("piece", ("ism",)), 'word piece "ism"'),
        (Rule("piece", ("0",)), 'digit "0" in numbers'),
        (Rule("prefix", ("inter",)), 'words starting with "inter"'),
        (Rule("suffix", ("ism", "ist")), 'words ending in "ism", "ist"'),
        (Rule("class", ("years",)), "years"),
        (Rule("after", ("of",)), 'token after "of"'),
        (Rule("before", ("of",)), 'token before "of"'),
        (Rule("before", ("of", "for"), predicted=True), 'say "of", "for" next'),
        (Rule("context", ("acid", "reaction")), "in texts on acid, reaction"),
        (Rule("context", ("def", "self", "items")), "in code with def, self, items"),
        (Rule("word", ("of",), also=Rule("after", ("University",))), '"of" after "University"'),
        (Rule("class", ("years",), also=Rule("context", ("war", "army"))), "years in texts on war, army"),
        (Rule("word", ("self",), also=Rule("class", ("code",))), '"self" in code'),
        (
            Rule("word", ("The",), also=Rule("class", ("first words of sentences",))),
            '"The" at the start of a sentence',
        ),
        (Rule("word", ("\n", "    ", " ", "\t")), "line break, 4 spaces, space, tab"),
        (Rule("word", ('"',)), "'\"'"),
        (Rule("any"), "almost every token"),
    ],
)
def test_a_rule_reads_as_a_person_would_say_it(rule: Rule, label: str) -> None:
    assert describe(rule) == label
    assert refusal(label) is None


def test_signs_that_a_label_may_not_show_are_called_by_name() -> None:
    items = ("<div", "\u200b", "x://", "www.", "\ue000")
    names = ['less-than sign "div"', "zero width space", '"x" colon solidus', '"www" full stop', "U+E000"]
    assert [describe(Rule("word", (item,))) for item in items] == names
    assert all(refusal(name) is None for name in names)


def test_examples_are_shown_while_there_is_room() -> None:
    rule = Rule("suffix", ("ism",))
    assert describe(rule, ["realism", "Marxism"]) == 'words ending in "ism" (realism, Marxism)'
    assert describe(rule, ["realism", "x" * 100]) == 'words ending in "ism" (realism)'


def test_what_does_not_fit_a_label_is_dropped_from_the_rule_too() -> None:
    long = Rule("word", tuple(f"{letter * 25}" for letter in "abcdefgh"))
    rule = fitting(long)
    assert rule.items == long.items[:4]
    assert len(describe(rule)) <= 120


def test_every_rule_can_be_made_to_fit() -> None:
    rng = random.Random(0)
    pool = [
        "\n",
        "<b>",
        "`",
        "**",
        "x" * 90,
        "www.",
        "war",
        "of",
        '"',
        "\u202e",
        "王",
        "'s",
        "https://",
        "a b",
    ]
    kinds = ["word", "piece", "prefix", "suffix", "after", "before", "context"]
    for _ in range(300):
        items = tuple(rng.choices(pool, k=rng.randint(1, 8)))
        also = Rule(rng.choice(kinds), tuple(rng.choices(pool, k=3))) if rng.random() < 0.5 else None
        rule = fitting(Rule(rng.choice(kinds), items, also=also))
        assert refusal(describe(rule)) is None
        assert set(rule.items) <= set(items)


def test_every_class_can_be_described_with_a_condition() -> None:
    for name in CLASSES:
        assert refusal(describe(Rule("class", (name,), also=Rule("after", ("of",))))) is None


def test_function_words_and_signs_are_no_topics() -> None:
    assert [is_topic(word) for word in ("acid", "the", "of", "x", "42", "=", "Paris")] == [
        True,
        *[False] * 5,
        True,
    ]
