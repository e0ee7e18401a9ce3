"""Windows of token ids read as words."""

from __future__ import annotations

import numpy as np

from autointerp.emulated import World
from neuroscope.autointerp.words import PAD, Vocabulary, Words, word_of


def vocabulary_of(*tokens: str) -> tuple[Vocabulary, np.ndarray]:
    """A vocabulary of `tokens`, and the window that they make."""
    return Vocabulary(list(tokens).__getitem__), np.arange(len(tokens), dtype=np.int32)[None]


def words_in(words: Words, numbers: np.ndarray) -> list[str | None]:
    return [None if n < 0 else words.vocabulary.words[n] for n in numbers[0].tolist()]


def test_the_pieces_of_a_word_are_joined() -> None:
    vocabulary, window = vocabulary_of(" Cop", "enh", "agen", " is", " cold")
    words = vocabulary.read(window)
    assert words_in(words, words.word) == ["Copenhagen", "Copenhagen", "Copenhagen", "is", "cold"]
    assert words.piece[0].tolist() == [True, True, True, False, False]
    assert words_in(words, words.token) == ["Cop", "enh", "agen", "is", "cold"]


def test_single_digits_make_one_number_and_punctuation_stands_alone() -> None:
    vocabulary, window = vocabulary_of(" ", "1", "9", "8", "4", ",", " x", "2", "(", "(")
    words = vocabulary.read(window)
    assert words_in(words, words.word) == [" ", *["1984"] * 4, ",", "x", "2", "(", "("]


def test_neighbours_are_words_not_tokens() -> None:
    vocabulary, window = vocabulary_of(" of", " Cop", "enh", "agen", " Now")
    words = vocabulary.read(window)
    assert words_in(words, words.previous) == [None, "of", "of", "of", "copenhagen"]
    assert words_in(words, words.next) == ["copenhagen", "now", "now", "now", None]


def test_padding_is_no_word_and_no_neighbour() -> None:
    vocabulary, _ = vocabulary_of("The", " end")
    words = vocabulary.read(np.array([[PAD, PAD, 0, 1, PAD]], np.int32))
    assert words_in(words, words.word) == [None, None, "The", "end", None]
    assert words_in(words, words.previous) == [None, None, None, "the", None]
    assert words_in(words, words.next) == [None, None, "end", None, None]


def test_words_do_not_run_from_one_window_into_the_next() -> None:
    vocabulary, _ = vocabulary_of(" Cop", "enh")
    words = vocabulary.read(np.array([[1, 0], [1, 1]], np.int32))
    assert [[vocabulary.words[n] for n in row] for row in words.word] == [
        ["enh", "Cop"],
        ["enhenh", "enhenh"],
    ]


def test_case_is_folded_beside_the_word_as_written() -> None:
    vocabulary, window = vocabulary_of(" PARIS", " Paris", " paris")
    words = vocabulary.read(window)
    assert len(set(words.folded[0].tolist())) == 1
    assert words_in(words, words.word) == ["PARIS", "Paris", "paris"]


def test_scripts_without_blanks_are_not_run_together() -> None:
    vocabulary, window = vocabulary_of("北", "京", " Пет", "ров")
    words = vocabulary.read(window)
    assert words_in(words, words.word) == ["北", "京", "Петров", "Петров"]


def test_blank_tokens_keep_what_they_are() -> None:
    assert [word_of(text) for text in ("\n\n", "    ", " a ", "", "\r\n ")] == ["\n", "    ", "a", "", "\n"]


def test_a_sentencepiece_mark_is_a_blank() -> None:
    vocabulary, window = vocabulary_of("▁Par", "is", "▁is")
    words = vocabulary.read(window)
    assert words_in(words, words.word) == ["Paris", "Paris", "is"]


def test_reading_agrees_with_joining_each_window_by_hand() -> None:
    """The oracle: walk every window token by token."""
    world = World.written(40)
    rng = np.random.default_rng(0)
    windows = rng.integers(-3, len(world.vocabulary), (200, 9)).clip(PAD).astype(np.int32)
    words = Vocabulary(world.text).read(windows)
    for row, window in enumerate(windows.tolist()):
        spans: list[list[int]] = []
        for column, token in enumerate(window):
            text = world.text(token) if token >= 0 else ""
            last = world.text(window[column - 1]) if column and window[column - 1] >= 0 else ""
            goes_on = bool(text and last) and (
                (text[0].isalpha() and last[-1].isalpha()) or (text[0].isdigit() and last[-1].isdigit())
            )
            if goes_on:
                spans[-1].append(column)
            else:
                spans.append([column])
        for span in spans:
            if window[span[0]] < 0:
                continue
            expected = word_of("".join(world.text(window[column]) for column in span))
            assert {words.vocabulary.words[n] for n in words.word[row, span]} == {expected}


def test_taking_rows_takes_every_array() -> None:
    world = World.written(10)
    windows = np.random.default_rng(1).integers(0, len(world.vocabulary), (6, 5)).astype(np.int32)
    words = Vocabulary(world.text).read(windows)
    some = words.take(np.array([4, 1]))
    for name in ("ids", "word", "token", "joined", "previous", "next", "folded", "piece"):
        assert np.array_equal(getattr(some, name), getattr(words, name)[[4, 1]]), name


def test_no_windows_are_no_words() -> None:
    vocabulary, _ = vocabulary_of("a")
    assert len(vocabulary.read(np.zeros((0, 25), np.int32))) == 0
