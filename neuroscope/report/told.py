"""What to know before the report's numbers are believed, in sentences, each with the command that helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuroscope.report.drift import Drift
from neuroscope.report.numbers import LATE, Coverage, Missing, Scores
from neuroscope.report.record import Report
from neuroscope.stats import MIN_FIRINGS

MANY = 0.1
"""Share of the features above which something that should be rare is told."""
RISING = 0.01
"""Share of the features; when so many are first seen at the sweep's end, it was too short."""
L0_FACTOR = 2.0
"""The mean L0 may be this many times the published one, or its inverse: texts differ, wrong layers differ more."""
DRIFTING = 0.5
"""Share of the compared features."""


def warnings(report: Report, sweep: Mapping[str, Any], verification_is_there: bool) -> Iterator[str]:
    """`sweep` is the report of the sweep; commands name no pairing yet."""
    yield from _of_firing(report)
    yield from _of_l0(report)
    yield from _of_verification(report, verification_is_there)
    yield from _of_labels(report)
    yield from _of_drift(report.drift)
    if left_out := len(sweep.get("quarantined") or ()):
        yield f"{left_out:,} documents of the corpus could not be read and were left out."
    if halved := len(sweep.get("halved") or ()):
        yield (
            f"{halved:,} chunks ran with a smaller batch for lack of memory: their sums are rounded a little otherwise."
        )


def _of_firing(report: Report) -> Iterator[str]:
    firing, coverage = report.firing, report.coverage
    if isinstance(firing, Missing):
        yield f"{firing.reason} Sweep texts with: neuroscope labels generate"
        return
    if firing.rare > MANY * firing.features:
        yield (
            f"Few tokens: {firing.rare:,} of {firing.features:,} features fired fewer than {MIN_FIRINGS} times in "
            f"{firing.tokens:,} tokens. Their means say little and they have no surprise. Sweep more documents, such "
            "as: neuroscope labels generate --samples 50000"
        )
    if firing.dead > MANY * firing.features:
        yield (
            f"{firing.dead:,} of {firing.features:,} features never fired. They are dead, or the corpus lacks what "
            "they stand for."
        )
    if isinstance(coverage, Coverage) and coverage.late > RISING * coverage.features:
        yield (
            f"The last {LATE:.0%} of the tokens added {coverage.late:,} of {coverage.features:,} features: more text "
            "would show more of them."
        )


def _of_l0(report: Report) -> Iterator[str]:
    published, measured = report.published_l0, report.overall.l0
    if published and not published / L0_FACTOR <= measured <= published * L0_FACTOR:
        yield (
            f"The mean L0 is {measured:.1f}, published is {published:g}: the SAE may be read on another layer or with "
            "another norm than it was trained with. Test it with: neuroscope verify"
        )


def _of_verification(report: Report, is_there: bool) -> Iterator[str]:
    found = report.verification
    if found is None:
        why = (
            "verification.json is about something else, or cannot be read"
            if is_there
            else "they were not tested"
        )
        yield f"Whether the numbers are right, and the FVU, is not known: {why}. Test them with: neuroscope verify"
        return
    if found.off:
        yield f"Numbers are off: verification failed on {', '.join(found.off)}. See what and why: neuroscope verify"
    yield from found.warnings


def _of_labels(report: Report) -> Iterator[str]:
    if not report.sources:
        yield "There are no labels: features are shown by number. Make them with: neuroscope labels generate"
        return
    if isinstance(report.scores, Missing):
        yield "No label has a score: how far to trust them is unknown. Score them with: neuroscope labels score"
        return
    shown = {source.name for source in report.sources if source.shown}
    judged = {score.source for score in report.scores if score.scored}
    if unjudged := sorted(shown - judged):
        yield f"No label of {', '.join(unjudged)} has a score: how far to trust them is unknown."
    for score in report.scores:
        if score.source in shown and score.mean is not None and score.mean < report.min_score:
            yield _low(score, report.min_score)


def _low(score: Scores, min_score: float) -> str:
    return (
        f"Labels of {score.source} reach {score.mean:.2f} on average by {score.method}; {min_score:g} is the least "
        "that is called good, 0.5 is chance."
    )


def _of_drift(drift: Drift | Missing) -> Iterator[str]:
    if isinstance(drift, Missing):
        yield f"Whether firing rates depend on the kind of text is not known. {drift.reason}"
        return
    for pair in drift.shown:
        if pair.share is not None and pair.share > DRIFTING:
            yield (
                f"Firing rates drift: {pair.differ:,} of {pair.compared:,} features fire more than twice, or less "
                f"than half, as often in {pair.b} as in {pair.a}. Filter by the rates of the text that you serve "
                "(ranking.stratum)."
            )
