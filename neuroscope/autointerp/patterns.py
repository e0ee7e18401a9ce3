"""Finding what the examples of one feature have in common: each finder proposes the best rule of its kind.

A finder sees the labelling examples and ordinary text, and gives a rule with how common ordinary text is that
satisfies it. Which finder's rule becomes the label is decided in `choice`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from neuroscope.autointerp.background import AFFIX_LENGTHS, at_least_two
from neuroscope.autointerp.case import (
    MIN_GAIN,
    Case,
    Found,
    cover,
    shares_of,
    specific,
    windows_and_rate,
)
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.words import BROKEN

FEW_EXAMPLES = 8
"""With at least so many, a word counts only when two of them show it."""
MIN_CLASS_SHARE = 0.3
MIN_AFFIX_SHARE, MIN_AFFIX_WORDS = 0.2, 3
MIN_CONTEXT_SHARE, MIN_CONTEXT_EXAMPLES = 0.1, 3
MIN_CONTEXT_Z = 2.0

Finder = Callable[[Case], Found | None]


def _pick(
    case: Case, values: Sequence[int], where: Mapping[int, int], counts: Mapping[int, int]
) -> list[int]:
    """The values that tell the examples from ordinary text, where each example shows one."""
    shares = shares_of(values, case.weights)
    carriers = defaultdict[int, set[int]](set)
    for row, value in enumerate(values):
        carriers[value].add(row)
    least = 2 if len(case) >= FEW_EXAMPLES else 1
    candidates = [
        value
        for value in specific(shares, len(case), counts, case.background.n_tokens)
        if len(carriers[value]) >= least and BROKEN not in case.vocabulary.words[value]
    ]
    return cover(case, {value: frozenset(carriers[value]) for value in candidates}, where, counts)


def _found(
    case: Case, kind: str, values: Sequence[int], where: Mapping[int, int], counts: Mapping[int, int]
) -> Found | None:
    chosen = _pick(case, values, where, counts)
    spelled = case.vocabulary.words.__getitem__ if kind == "piece" else case.background.spelled
    items = tuple(map(spelled, chosen))
    if not items or not all(items):
        return None
    return Found(Rule(kind, items), *windows_and_rate(case.background, chosen, where, counts))


def find_words(case: Case) -> Found | None:
    """One exact word, or a family of words, as they are mostly written."""
    background = case.background
    values = [token.word for token in case.tokens]
    chosen = _pick(case, values, background.windows_of, background.count_of)
    spellings = defaultdict[int, Counter[int]](Counter)
    for token in case.tokens:
        spellings[token.word][token.written] += 1
    written = [spellings[number].most_common(1)[0][0] for number in chosen]
    items = tuple(case.vocabulary.words[number] for number in written)
    if not items or not all(items):
        return None
    any_case = windows_and_rate(background, chosen, background.windows_of, background.count_of)
    found = Found(Rule("word", items), *any_case)
    if written == chosen:
        return found
    as_written = windows_and_rate(
        background, written, background.windows_of_written, background.count_of_written
    )
    cased = Found(Rule("word", items, cased=True), *as_written)
    fewer_hits = background.false_rate(any_case[0], case.negatives, any_case[1]) - background.false_rate(
        as_written[0], case.negatives, as_written[1]
    )
    lost = case.coverage(found.rule) - case.coverage(cased.rule)
    return cased if fewer_hits > lost + MIN_GAIN else found


def find_pieces(case: Case) -> Found | None:
    """One piece of many words."""
    background = case.background
    pieces = [token.piece for token in case.tokens]
    return _found(case, "piece", pieces, background.windows_of_piece, background.count_of_piece)


def find_previous(case: Case) -> Found | None:
    """The word before."""
    background = case.background
    before = [token.previous for token in case.tokens]
    return _found(case, "after", before, background.windows_of, background.count_of)


def find_next(case: Case) -> Found | None:
    """The word after: what the model is about to say, when the feature promotes it."""
    background = case.background
    after = [token.next for token in case.tokens]
    found = _found(case, "before", after, background.windows_of, background.count_of)
    if found is None:
        return None
    numbers = {case.vocabulary.find(item.casefold()) for item in found.rule.items}
    if len(numbers & case.promoted) * 2 < len(numbers):
        return found
    return Found(Rule("before", found.rule.items, predicted=True), found.windows, found.token_rate)


def find_prefix(case: Case) -> Found | None:
    return _find_affix(case, "prefix")


def find_suffix(case: Case) -> Found | None:
    return _find_affix(case, "suffix")


def _find_affix(case: Case, kind: str) -> Found | None:
    shares, carriers = defaultdict[str, float](float), defaultdict[str, set[int]](set)
    for token, weight in zip(case.tokens, case.weights, strict=True):
        word = case.vocabulary.words[token.word]
        if not word.isalpha():
            continue
        for length in AFFIX_LENGTHS[kind]:
            if len(word) > length:
                affix = word[:length] if kind == "prefix" else word[-length:]
                shares[affix] += weight
                carriers[affix].add(token.word)
    background, best, best_gain = case.background, None, MIN_GAIN
    for affix, share in shares.items():
        if share < MIN_AFFIX_SHARE or len(carriers[affix]) < MIN_AFFIX_WORDS:
            continue
        windows, rate = background.windows_of_affix(kind, affix), background.rate_of_affix(kind, affix)
        gain = share - background.false_rate(windows, case.negatives, rate) + 0.001 * len(affix)
        if gain > best_gain:
            best, best_gain = Found(Rule(kind, (affix,)), windows, rate), gain
    return best


def find_class(case: Case) -> Found | None:
    """A kind of word with a name: numbers, prepositions, capitalised names, code, ..."""
    background, best, best_gain = case.background, None, MIN_GAIN
    for name in set().union(*(token.classes for token in case.tokens)):
        found = _find_named(case, name)
        if found is None:
            continue
        share = case.coverage(found.rule)
        false = background.false_rate(found.windows, case.negatives, found.token_rate)
        gain = 0.7 * (share - false) + 0.3 * (share - found.token_rate)
        if (gain, name) > (best_gain, "" if best is None else best.rule.items[0]):
            best, best_gain = found, gain
    return best


def find_code(case: Case) -> Found | None:
    """That the text is code."""
    return _find_named(case, "code")


def find_sentence_start(case: Case) -> Found | None:
    """That the token begins a sentence."""
    return _find_named(case, "first words of sentences")


def _find_named(case: Case, name: str) -> Found | None:
    rule, background = Rule("class", (name,)), case.background
    if case.coverage(rule) < MIN_CLASS_SHARE:
        return None
    return Found(rule, background.windows_of_class[name], background.rate_of_class[name])


def find_context(case: Case) -> Found | None:
    """What the texts are about: content words around the activating token, which itself varies."""
    background = case.background
    shares, carriers = defaultdict[int, float](float), defaultdict[int, set[int]](set)
    for row, (token, weight) in enumerate(zip(case.tokens, case.weights, strict=True)):
        for word in token.context:
            if word != token.word:
                shares[word] += weight
                carriers[word].add(row)
    often = {
        word: share
        for word, share in shares.items()
        if share >= MIN_CONTEXT_SHARE and len(carriers[word]) >= MIN_CONTEXT_EXAMPLES
    }
    candidates = specific(often, len(case), background.windows_with, background.size, MIN_CONTEXT_Z)
    where = background.windows_of
    chosen = cover(
        case, {word: frozenset(carriers[word]) for word in candidates}, where, background.windows_with
    )
    if not chosen:
        return None
    items = tuple(map(background.spelled, chosen))
    windows, _ = windows_and_rate(background, chosen, where, {})
    one = Found(Rule("context", items), windows, windows.bit_count() / background.size)
    if len(chosen) < 4:
        return one
    windows = at_least_two([where.get(number, 0) for number in chosen])
    two = Found(Rule("context", items, at_least=2), windows, windows.bit_count() / background.size)
    return max(one, two, key=lambda found: _separation(case, found))


def _separation(case: Case, found: Found) -> float:
    return case.coverage(found.rule) - case.background.false_rate(
        found.windows, case.negatives, found.token_rate
    )
