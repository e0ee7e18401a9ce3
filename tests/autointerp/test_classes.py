"""Kinds of words with a name of their own."""

from __future__ import annotations

import numpy as np
import pytest

from neuroscope.autointerp.classes import CLASSES, SPELLINGS, WORD_LISTS, classes_of, is_class
from neuroscope.autointerp.words import PAD, Vocabulary
from neuroscope.labels import validate


def holds(name: str, *tokens: str, pad: int = 0) -> list[bool]:
    window = [PAD] * pad + list(range(len(tokens)))
    words = Vocabulary(list(tokens).__getitem__).read(np.array([window], np.int32))
    return is_class(words, name)[0, pad:].tolist()


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("numbers", ["7", "1984"], ["seven", "4x", ""]),
        ("years", ["1984", "2024"], ["984", "3024", "19845"]),
        ("capitalised words", ["Paris", "It"], ["paris", "NATO", "I", "1A"]),
        ("words in capitals", ["NATO", "US"], ["Nato", "I", "A1"]),
        ("punctuation", [",", "...", "')"], ["a,", " ", ""]),
        ("names in camelCase", ["getItem"], ["GetItem"[:3], "getitem", "get_item"]),
        ("words with accents", ["Māori", "café"], ["cafe", "北"]),
        ("Cyrillic words", ["Петров"], ["Petrov"]),
        ("Chinese or Japanese characters", ["北", "かな"], ["Beijing"]),
        ("indentation", ["    ", "\t"], ["\n", "x", ""]),
    ],
)
def test_a_spelling_accepts_what_its_name_says(name: str, inside: list[str], outside: list[str]) -> None:
    assert all(SPELLINGS[name](word) for word in inside)
    assert not any(SPELLINGS[name](word) for word in outside)


def test_first_words_of_sentences_follow_a_stop_and_have_a_capital() -> None:
    tokens = ["It", " ended", ".", " The", " end", ".", "path", "!", " Now"]
    assert holds("first words of sentences", *tokens) == [False, False, False, True, *[False] * 4, True]


def test_first_words_of_lines_follow_a_line_break_and_blanks() -> None:
    tokens = ["x", "\n", "    ", "return", " x", "\n", "def", " ", "5"]
    assert holds("first words of lines", *tokens) == [*[False] * 3, True, False, False, True, False, False]


def test_the_first_token_of_a_text_shows_only_after_padding() -> None:
    assert holds("first tokens of texts", "The", " end", pad=2) == [True, False]
    assert holds("first tokens of texts", "The", " end") == [False, False]


def test_capitalised_names_stand_inside_sentences() -> None:
    assert holds("capitalised names", "Then", " Otto", " left", ".", " Marie") == [False, True, *[False] * 3]


def test_parts_of_identifiers_touch_an_underscore() -> None:
    assert holds("parts of identifiers with underscores", " max", "_", "size", " x") == [
        True,
        False,
        True,
        False,
    ]


def test_code_is_told_from_prose_by_its_signs() -> None:
    assert all(holds("code", "def", " f", "(", "x", "):", "\n", "    ", "return", " x"))
    assert not any(
        holds("code", "The", " old", " king", " (", "of", " Poland", ")", " left", " the", " palace")
    )


def test_every_name_can_be_a_label() -> None:
    assert [validate(name) for name in CLASSES] == list(CLASSES)


def test_lists_hold_lower_case_words_that_their_classes_accept() -> None:
    for name, members in WORD_LISTS.items():
        for word in members:
            assert word == word.casefold()
            assert name in classes_of(word.upper())
