"""Kinds of words that have a name of their own: closed lists, spellings and places in the text.

Each name reads as a label ("prepositions", "years", "first words of sentences") and is true of exactly the tokens
that its entry here accepts. Which kind fits a feature is decided in `patterns`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from neuroscope.autointerp.words import BROKEN, PAD, Bools, Words


def word_list(words: str) -> frozenset[str]:
    """The words of a text, each once."""
    return frozenset(words.split())


WORD_LISTS: dict[str, frozenset[str]] = {
    "articles": word_list("a an the"),
    "prepositions": word_list(
        "of in to for with on at from by about into through over after between against during without before under "
        "around among within along across behind beyond near above upon toward towards throughout beneath beside"
    ),
    "conjunctions": word_list(
        "and or but nor yet so because although though while whereas unless if whether"
    ),
    "personal pronouns": word_list("i you he she it we they me him her us them"),
    "possessives": word_list("my your his her its our their mine yours hers ours theirs whose"),
    "question words": word_list("who what when where why how which whom whose"),
    "demonstratives": word_list("this that these those"),
    "forms of be": word_list("be is are was were been being am"),
    "modal verbs": word_list("can could may might must shall should will would cannot"),
    "forms of have": word_list("have has had having"),
    "negations": word_list("not no never none nothing neither nor without cannot n't"),
    "quantity words": word_list(
        "some many much more most few fewer several all any each every both less least enough various numerous"
    ),
    "number words": word_list(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand "
        "million billion trillion dozen"
    ),
    "ordinals": word_list(
        "first second third fourth fifth sixth seventh eighth ninth tenth last next final 1st 2nd 3rd"
    ),
    "months": word_list(
        "january february march april june july august september october november december jan feb mar apr jun "
        "jul aug sep sept oct nov dec"
    ),
    "weekdays": word_list(
        "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun"
    ),
    "compass directions": word_list(
        "north south east west northern southern eastern western northeast northwest southeast southwest"
    ),
    "colours": word_list(
        "red blue green yellow black white brown orange purple pink grey gray gold golden silver violet crimson"
    ),
    "family members": word_list(
        "father mother son daughter brother sister husband wife parents parent child children uncle aunt nephew "
        "niece cousin grandfather grandmother grandson granddaughter siblings family"
    ),
    "opening brackets": word_list("( [ { (( [[ {{ (' (\" ['"),
    "closing brackets": word_list(") ] } )) ]] }} ). ), ); ]. ],"),
    "quotation marks": word_list("\" ' “ ” ‘ ’ « » `` '' \"\"\" ''' ,\" .\""),
    "dashes": word_list("- – — -- --- −"),
    "ends of sentences": word_list('. ! ? ... ." !" ?" .) …'),
    "arithmetic and comparison signs": word_list(
        "= == != + - * / % < > <= >= += -= *= /= ** // & | ^ && || := -> =>"
    ),
    "Python keywords": word_list(
        "def class return import from if elif else for while try except finally raise with as in is not and or "
        "lambda yield pass break continue global nonlocal assert del none true false self async await"
    ),
}
"""Closed classes, in lower case. A list never holds a word that its name does not cover."""

SPELLINGS: dict[str, Callable[[str], bool]] = {
    "numbers": lambda word: word.isdecimal(),
    "years": lambda word: bool(re.fullmatch(r"1\d\d\d|20\d\d", word)),
    "single digits": lambda word: len(word) == 1 and word.isdecimal(),
    "capitalised words": lambda word: len(word) > 1 and word[0].isupper() and word[1:2].islower(),
    "words in capitals": lambda word: len(word) > 1 and word.isalpha() and word.isupper(),
    "single letters": lambda word: len(word) == 1 and word.isalpha() and word.isascii(),
    "punctuation": lambda word: bool(word) and not any(c.isalnum() or c.isspace() for c in word),
    "line breaks": lambda word: word == "\n",
    "indentation": lambda word: bool(word) and word.isspace() and "\n" not in word,
    "names in camelCase": lambda word: bool(re.search(r"[a-z][A-Z]", word)) and word.isalpha(),
    "words with accents": lambda word: bool(re.fullmatch(r"[A-Za-zÀ-ɏ]*[À-ɏ][A-Za-zÀ-ɏ]*", word)),
    "Greek letters": lambda word: bool(re.fullmatch(r"[Ͱ-Ͽἀ-῿]+", word)),
    "Cyrillic words": lambda word: bool(re.fullmatch(r"[Ѐ-ԯ]+", word)),
    "Chinese or Japanese characters": lambda word: bool(re.fullmatch(r"[぀-ヿ㐀-鿿]+", word)),
    "parts of characters outside Latin script": lambda word: BROKEN in word,
}

_CODE = word_list("( ) [ ] { } = == self def return import _ () (): ): : :: ; -> += # __ (' ') [' '] . \n")


def _sentence_starts(words: Words) -> Bools:
    stops = [words.vocabulary.find(word) for word in (".", "!", "?", '."', '?"', '!"')]
    upper = words.vocabulary.table("begins with a capital", lambda word: word[:1].isupper())
    begins: Bools = words.valid & np.isin(words.previous, stops) & upper[np.maximum(words.word, 0)]
    return begins


def _line_starts(words: Words) -> Bools:
    """Words after a line break or after indentation."""
    blank = words.vocabulary.table("blank", lambda word: word == "\n" or (word.isspace() and len(word) > 1))
    begins: Bools = (
        words.valid
        & (words.previous != PAD)
        & blank[np.maximum(words.previous, 0)]
        & ~blank[np.maximum(words.word, 0)]
    )
    return begins


def _text_starts(words: Words) -> Bools:
    """The first token after padding: a document's first; windows cut inside a document show none."""
    starts = np.zeros_like(words.valid)
    starts[:, 1:] = words.valid[:, 1:] & ~words.valid[:, :-1]
    return starts


def _mid_sentence_capitals(words: Words) -> Bools:
    known = words.previous != PAD
    names: Bools = _is_spelled(words, "capitalised words") & known & ~_sentence_starts(words)
    return names


def _identifier_parts(words: Words) -> Bools:
    """Words beside an underscore."""
    underscore = words.vocabulary.find("_")
    beside = (words.previous == underscore) | (words.next == underscore)
    parts: Bools = words.valid & beside & (words.folded != underscore)
    return parts


def _in_code(words: Words) -> Bools:
    """Every token of a window of which a quarter or more are signs of code."""
    signs = [words.vocabulary.find(word) for word in _CODE]
    weight = np.isin(words.folded, signs).sum(1) + is_class(words, "indentation").sum(1)
    code: Bools = words.valid & (weight * 4 >= words.valid.sum(1))[:, None]
    return code


PLACES: dict[str, Callable[[Words], Bools]] = {
    "first words of sentences": _sentence_starts,
    "first words of lines": _line_starts,
    "first tokens of texts": _text_starts,
    "capitalised names": _mid_sentence_capitals,
    "parts of identifiers with underscores": _identifier_parts,
    "code": _in_code,
}

CLASSES = (*WORD_LISTS, *SPELLINGS, *PLACES)


def _is_listed(words: Words, name: str) -> Bools:
    members = [words.vocabulary.find(word) for word in WORD_LISTS[name]]
    return np.isin(words.folded, members)


def _is_spelled(words: Words, name: str) -> Bools:
    table = words.vocabulary.table(name, SPELLINGS[name])
    return words.valid & table[np.maximum(words.word, 0)]


def is_class(words: Words, name: str) -> Bools:
    """Which tokens [windows, width] are of the class `name`."""
    if name in WORD_LISTS:
        return _is_listed(words, name)
    if name in SPELLINGS:
        return _is_spelled(words, name)
    return PLACES[name](words)


def classes_of(word: str) -> frozenset[str]:
    """The classes that a word, as written, belongs to wherever it stands."""
    folded = word.casefold()
    listed = {name for name, members in WORD_LISTS.items() if folded in members}
    return frozenset(listed | {name for name, accepts in SPELLINGS.items() if accepts(word)})
