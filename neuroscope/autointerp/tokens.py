"""The labeler that needs no key: it names a feature by what its examples have in common.

`patterns` proposes rules, `choice` compares them; the label is the best rule in words, so that the detection score
judges exactly what a reader was told. When the examples disagree, the tokens that the feature promotes name it.
"""

from __future__ import annotations

from collections.abc import Sequence

from neuroscope.autointerp.background import Background
from neuroscope.autointerp.case import Case, read_tokens
from neuroscope.autointerp.choice import Candidate, always_on, best_candidate, commonest, exact
from neuroscope.autointerp.describe import describe, distinct, fitting, readable
from neuroscope.autointerp.evidence import Examples, PoolSide
from neuroscope.autointerp.labeler import LabelRequest, LabelResult
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.words import Vocabulary, word_of
from neuroscope.labels import refusal, validate

ALWAYS_ON = 0.3
"""A feature that fires on more than this share of tokens says little about any of them."""
POOL_EXAMPLES = 30
MIXED = 0.3
"""A label that covers a smaller share of the examples says so."""
SPARSE = 5
"""With fewer examples nothing can be said with confidence."""
SAID, SAID_AT_LEAST = 5, 3
"""Promoted words that a label names."""
WEAK = 0.1
"""Under this score the examples have nothing in common: what the feature promotes is the better name."""


class TokensLabeler:
    """Names features from their examples, the words of ordinary text and the tokens they promote."""

    source = "tokens"
    model = None
    method = "pattern of examples and promoted tokens"

    def __init__(self, pool: PoolSide, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._background = Background(pool, vocabulary)

    def label(self, request: LabelRequest) -> LabelResult:
        case = self._case(request)
        if len(case) == 0:
            return LabelResult(request.feature, "dead")
        if request.firing_rate is not None and request.firing_rate > ALWAYS_ON:
            return _result(request, case, always_on(case))
        best = best_candidate(case)
        if best is None or best.score < WEAK:
            best = max(
                (c for c in (self._by_promotion(request, case), best, commonest(case)) if c is not None),
                key=lambda candidate: candidate.coverage - candidate.false_rate,
            )
        return _result(request, case, best)

    def _case(self, request: LabelRequest) -> Case:
        """Top examples on one side, examples over the distribution on the other, each weighted by activation."""
        background = self._background
        extra = background.pool.firings(request.feature, without=request.unseen, limit=POOL_EXAMPLES)
        sample = request.sample.without(request.top)
        spread = [*sample.activations.tolist(), *extra.activations.tolist()]
        weights = _shares(request.top.activations.tolist(), 1.0) + _shares(spread, min(1.0, len(spread) / 10))
        promoted = {self._vocabulary.find(word_of(token).casefold()) for token in request.promoted}
        return Case(
            background,
            read_tokens(background, Examples.joined(request.top, sample, extra)),
            _shares(weights, 1.0),
            background.negatives(request.feature),
            frozenset(promoted),
        )

    def _by_promotion(self, request: LabelRequest, case: Case) -> Candidate | None:
        """`say X`, from the tokens that the feature promotes most, when they are words of ordinary text."""
        known = self._background.count_of
        words = [word_of(token) for token in request.promoted if token[:1].isspace()]
        words = [word for word in words if readable(word) and self._vocabulary.find(word.casefold()) in known]
        items = tuple(distinct(words))[:SAID]
        return exact(case, Rule("before", items, predicted=True)) if len(items) >= SAID_AT_LEAST else None


def _shares(values: Sequence[float], total: float) -> list[float]:
    """`values` scaled to sum to `total`."""
    scale = total / (sum(values) or 1.0)
    return [value * scale for value in values]


def _result(request: LabelRequest, case: Case, best: Candidate) -> LabelResult:
    rule = fitting(best.rule)
    covered = case.coverage(rule)
    label = describe(rule, _instances(case, rule))
    if covered < MIXED and refusal(f"mixed: {label}") is None:
        label = f"mixed: {label}"
    return LabelResult(
        request.feature,
        "labelled",
        validate(label),
        confidence((covered + best.coverage) / 2, best.false_rate, len(case)),
        f"holds for {covered:.0%} of {len(case)} examples and {best.false_rate:.0%} of other windows",
        rule.to_json(),
    )


def _instances(case: Case, rule: Rule) -> list[str]:
    """Words that show what a rule without words of its own means."""
    if rule.kind not in ("prefix", "suffix", "class", "piece"):
        return []
    shares: dict[str, float] = {}
    for word, weight, holds in zip(case.words, case.weights, case.covered(rule), strict=True):
        if holds and readable(word):
            shares[word] = shares.get(word, 0.0) + weight
    return distinct(sorted(shares, key=lambda word: -shares[word]))[:3]


def confidence(coverage: float, false_rate: float, n_examples: int) -> str:
    """By the share of examples the label covers; lower when much ordinary text satisfies it too.

    `coverage` is the mean of two: of all examples, and of examples that the rule was not found in.
    """
    if n_examples < SPARSE or coverage < 0.4 or false_rate > 0.5:
        return "low"
    if coverage < 0.75 or false_rate > 0.2:
        return "medium"
    return "high"
