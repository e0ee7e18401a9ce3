"""Which tokens of two texts are the same ones: runs of equal tokens, in order, longest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

MOST_STEPS = 200_000_000
"""Of the search for longest runs: some ten seconds. Texts of thousands of tokens that repeat a few exceed it."""


class Run(NamedTuple):
    """`length` tokens from `a` on in the first text are those from `b` on in the second."""

    a: int
    b: int
    length: int


class Alignment(NamedTuple):
    runs: list[Run]
    is_whole: bool
    """False where the texts are too long and too much alike: their common beginning and end alone are aligned."""


def align(a: Sequence[int], b: Sequence[int]) -> Alignment:
    """The same whichever of the two comes first."""
    if list(b) < list(a):
        runs, is_whole = align(b, a)
        return Alignment([Run(run.b, run.a, run.length) for run in runs], is_whole)
    shorter = min(len(a), len(b))
    start = next((n for n in range(shorter) if a[n] != b[n]), shorter)
    end = next((n for n in range(shorter - start) if a[-1 - n] != b[-1 - n]), shorter - start)
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    is_whole = _steps(inner_a, inner_b) <= MOST_STEPS
    matcher = SequenceMatcher(None, inner_a, inner_b, autojunk=False) if is_whole else None
    inner = [] if matcher is None else matcher.get_matching_blocks()
    runs = [Run(0, 0, start), *(Run(start + m.a, start + m.b, m.size) for m in inner)]
    return Alignment(_joined([*runs, Run(len(a) - end, len(b) - end, end)]), is_whole)


def _steps(a: Sequence[int], b: Sequence[int]) -> int:
    """A bound of what the search costs: all equal pairs, once for each run it may find."""
    counts = Counter(b)
    return sum(count * counts[token] for token, count in Counter(a).items()) * min(len(a), len(b))


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Without empty ones, and those that follow each other without a gap as one."""
    found: list[Run] = []
    for run in runs:
        last = found[-1] if found else None
        if last is not None and (last.a + last.length, last.b + last.length) == (run.a, run.b):
            found[-1] = last._replace(length=last.length + run.length)
        elif run.length:
            found.append(run)
    return found
