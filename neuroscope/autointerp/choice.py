"""Choosing among the rules that fit a feature's examples, and narrowing the winner.

A rule is judged by how much of one half of the examples the rule found in the other half covers, less how often
ordinary text without the feature satisfies it. Simpler rules, and rules about the token itself, win ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from neuroscope.autointerp import patterns
from neuroscope.autointerp.background import bitset, members
from neuroscope.autointerp.case import Case, Found
from neuroscope.autointerp.patterns import Finder
from neuroscope.autointerp.rules import Rule, marks

LOCAL = 0.3
"""Weight of how well a rule singles out tokens, beside how well it singles out windows."""
PER_ITEM = 0.004
NARROWED_GAIN = 0.04
"""What a second condition must add."""
NARROWED_EXAMPLES = 6

FINDERS: tuple[tuple[Finder, float], ...] = (
    (patterns.find_words, 0.0),
    (patterns.find_class, 0.005),
    (patterns.find_suffix, 0.05),
    (patterns.find_prefix, 0.05),
    (patterns.find_pieces, 0.03),
    (patterns.find_previous, 0.03),
    (patterns.find_next, 0.06),
    (patterns.find_context, 0.14),
)
"""Each finder with the handicap of its rules: the larger, the less a rule says about the token itself."""

CONDITIONS: tuple[Finder, ...] = (
    patterns.find_previous,
    patterns.find_context,
    patterns.find_code,
    patterns.find_sentence_start,
)
SUBJECTS: tuple[Finder, ...] = (patterns.find_words, patterns.find_class, patterns.find_suffix)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule with how well it fits."""

    rule: Rule
    windows: int
    """Bitset of background windows that satisfy it."""
    coverage: float
    """Share of the examples, by activation, that it holds for, when found without them."""
    false_rate: float
    """Share of background windows without the feature that satisfy it."""
    score: float


def _candidate(case: Case, found: Found, coverage: float, handicap: float) -> Candidate:
    false = case.background.false_rate(found.windows, case.negatives, found.token_rate)
    items = len(found.rule.items) + (0 if found.rule.also is None else len(found.rule.also.items))
    score = (1 - LOCAL) * (coverage - false) + LOCAL * (coverage - found.token_rate)
    return Candidate(found.rule, found.windows, coverage, false, score - handicap - PER_ITEM * items)


def judged(case: Case, finder: Finder, handicap: float = 0.0) -> Candidate | None:
    """What `finder` finds in all examples, its coverage measured across two halves of them."""
    found = finder(case)
    if found is None:
        return None
    if len(case) < 4:
        return _candidate(case, found, case.coverage(found.rule), handicap)
    halves = [case.take(range(start, len(case), 2)) for start in (0, 1)]
    coverage = 0.0
    for known, other in (halves, halves[::-1]):
        part = finder(known)
        coverage += 0.0 if part is None else other.coverage(part.rule) / 2
    return _candidate(case, found, coverage, handicap)


def exact(case: Case, rule: Rule, coverage: float | None = None, handicap: float = 0.0) -> Candidate:
    """A candidate from a rule, background windows and tokens counted one by one."""
    background = case.background
    windows = background.windows_of_rule(rule)
    rate = float(marks(rule, background.words).sum()) / background.n_tokens
    return _candidate(
        case, Found(rule, windows, rate), case.coverage(rule) if coverage is None else coverage, handicap
    )


def best_candidate(case: Case) -> Candidate | None:
    """The rule that says best when the feature fires; None when no finder finds any."""
    found = [c for finder, handicap in FINDERS if (c := judged(case, finder, handicap)) is not None]
    found.sort(key=lambda candidate: -candidate.score)
    narrower = [n for candidate in found[:2] for n in narrowed(case, candidate)]
    return max([*found[:1], *narrower], key=lambda candidate: candidate.score, default=None)


def narrowed(case: Case, base: Candidate) -> Iterator[Candidate]:
    """`base` with a second condition: what the token is, when `base` does not say it, else what is around it."""
    rows = [row for row, holds in enumerate(case.covered(base.rule)) if holds]
    if len(rows) < NARROWED_EXAMPLES:
        return
    indirect = base.rule.kind in ("context", "after")
    if not indirect and base.false_rate < NARROWED_GAIN:
        return
    within = case.take(rows, case.negatives & base.windows)
    for finder in SUBJECTS if indirect else CONDITIONS:
        condition = judged(within, finder)
        if condition is None or condition.coverage < 0.5 or condition.rule.items == base.rule.items:
            continue
        if indirect and condition.rule.items == ("code",):
            continue
        first, second = (condition.rule, base.rule) if indirect else (base.rule, condition.rule)
        candidate = _both(case, replace(first, also=second), base, condition)
        if candidate.score > base.score + (0.0 if indirect else NARROWED_GAIN):
            yield candidate


def _both(case: Case, rule: Rule, base: Candidate, condition: Candidate) -> Candidate:
    background = case.background
    rows = members(base.windows & condition.windows, background.size)
    found = marks(rule, background.words.take(rows))
    windows = bitset(rows[found.any(1)], background.size)
    both = Found(rule, windows, float(found.sum()) / background.n_tokens)
    handicap = 0.05 if "context" in (base.rule.kind, condition.rule.kind) else 0.02
    return _candidate(case, both, base.coverage * condition.coverage, handicap)


def always_on(case: Case) -> Candidate:
    """The rule of a feature that fires nearly everywhere."""
    return exact(case, Rule("any"))


def commonest(case: Case) -> Candidate:
    """The most frequent words at the activating token, when they are all that can be said."""
    shares: dict[str, float] = {}
    for word, weight in zip(case.words, case.weights, strict=True):
        if word:
            shares[word] = shares.get(word, 0.0) + weight
    items = sorted(shares, key=lambda word: -shares[word])[:3]
    return exact(case, Rule("word", tuple(items)) if items else Rule("any"))
