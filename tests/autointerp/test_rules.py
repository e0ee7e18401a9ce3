"""Rules: what a label says, checked in windows."""

from __future__ import annotations

import numpy as np
import pytest

from neuroscope.autointerp.rules import Rule, hits, marks
from neuroscope.autointerp.words import Vocabulary, Words
from neuroscope.errors import LabelError

TOKENS = ["The", " University", " of", " Cop", "enh", "agen", " may", " open", " in", " May", ".", " realism"]


@pytest.fixture
def words() -> Words:
    return Vocabulary(TOKENS.__getitem__).read(np.arange(len(TOKENS), dtype=np.int32)[None])


@pytest.mark.parametrize(
    ("rule", "marked"),
    [
        (Rule("word", ("May",)), [" may", " May"]),
        (Rule("word", ("May",), cased=True), [" May"]),
        (Rule("word", ("Copenhagen", "open")), [" Cop", "enh", "agen", " open"]),
        (Rule("piece", ("cop", "agen")), [" Cop", "agen"]),
        (Rule("piece", ("open",)), []),
        (Rule("prefix", ("cope",)), [" Cop", "enh", "agen"]),
        (Rule("suffix", ("ism",)), [" realism"]),
        (Rule("suffix", ("realism",)), []),
        (Rule("class", ("prepositions",)), [" of", " in"]),
        (Rule("after", ("of", "in")), [" Cop", "enh", "agen", " May"]),
        (Rule("before", ("of",)), [" University"]),
        (Rule("word", ("of",), also=Rule("after", ("university",))), [" of"]),
        (Rule("word", ("in",), also=Rule("after", ("university",))), []),
        (Rule("word", ("in",), also=Rule("context", ("Realism",))), [" in"]),
        (Rule("context", ("university", "acid")), TOKENS),
        (Rule("context", ("university", "acid"), at_least=2), []),
        (Rule("any"), TOKENS),
        (Rule("word", ("never seen",)), []),
    ],
)
def test_a_rule_marks_the_tokens_it_is_true_of(words: Words, rule: Rule, marked: list[str]) -> None:
    found = marks(rule, words)[0]
    assert [token for token, mark in zip(TOKENS, found, strict=True) if mark] == marked
    assert hits(rule, words).tolist() == [bool(marked)]


def test_padding_satisfies_no_rule() -> None:
    words = Vocabulary(TOKENS.__getitem__).read(np.array([[-1, 0, -1]], np.int32))
    assert marks(Rule("any"), words)[0].tolist() == [False, True, False]
    assert marks(Rule("context", ("the",)), words)[0].tolist() == [False, True, False]


@pytest.mark.parametrize(
    "rule",
    [
        Rule("word", ("Paris", '"', "é")),
        Rule("word", ("US",), cased=True),
        Rule("context", ("acid", "oxide"), at_least=2),
        Rule("before", ("of",), predicted=True),
        Rule("class", ("numbers",), also=Rule("context", ("war",), at_least=1)),
        Rule("any"),
    ],
)
def test_a_rule_survives_its_json(rule: Rule) -> None:
    assert Rule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"kind": "word"}', '{"kind": "spell", "items": ["x"]}', "null"]
)
def test_json_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(LabelError):
        Rule.from_json(text)


def test_a_class_rule_must_name_a_class() -> None:
    with pytest.raises(LabelError, match="names one of articles"):
        Rule("class", ("nice words",))
