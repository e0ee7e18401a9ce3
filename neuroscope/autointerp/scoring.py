"""Detection scores: does a label tell the windows on which its feature fires from those on which it does not?

Windows in which the feature fires are its held-out examples, over all quantiles of activation; windows in which it
is silent come from the scorers' side of the pool. Both are from documents that the label was not made from. A label
with a rule is judged by the rule alone, which sees the words of a window and no activation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.autointerp.accuracy import Confusion, balanced_accuracy
from neuroscope.autointerp.background import bitset, members, postings, union
from neuroscope.autointerp.evidence import CENTRE, ExampleTable, PoolSide, read_columns, scan
from neuroscope.autointerp.rules import Rule, hits
from neuroscope.autointerp.words import TokenText, Vocabulary, Words
from neuroscope.errors import LabelError
from neuroscope.sources import replace_atomically

METHOD = "rule"
NEAR_MISS = "rule_near_miss"
"""The same, against windows that hold the feature's own tokens though it is silent: harder, and kept apart."""

MIN_WINDOWS = 5
"""With fewer windows of a kind there is no score."""

SCHEMA = {
    "feature": pl.Int32,
    "source": pl.String,
    "method": pl.String,
    "balanced_accuracy": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "tp": pl.Int32,
    "fp": pl.Int32,
    "tn": pl.Int32,
    "fn": pl.Int32,
    "failed": pl.Int32,
}


@dataclass(frozen=True, slots=True)
class FeatureScore:
    """One row of scores.parquet."""

    feature: int
    source: str
    method: str
    balanced_accuracy: float | None
    """None when too few windows could be judged."""
    low: float | None
    high: float | None
    tp: int
    fp: int
    tn: int
    fn: int
    failed: int
    """Windows without a verdict. They are in no other count; a label that could not be scored has at least one."""


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """What came of scoring."""

    scored: int
    failed: int
    """Labels with too few held-out windows, or too few windows without their feature."""
    without_rule: int
    """Labels in free words: they need a reader."""
    mean: float | None
    """Mean balanced accuracy of the scored labels."""
    shuffled: float | None
    """The same when every label is judged on another feature's windows: a half, if windows do not give it away."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The windows that a feature's labels are judged on."""

    positives: Words
    negatives: Words
    near_misses: Words


class Trials:
    """Held-out windows of every feature, and the windows without it, chosen by hash."""

    def __init__(
        self,
        examples: Path,
        pool: Path,
        vocabulary: Vocabulary,
        *,
        positives: int,
        negatives: int,
        seed: int = 0,
    ) -> None:
        self._held_out = ExampleTable.read(examples, "held_out", positives)
        self._pool = PoolSide.read(pool, labelling=False)
        self._words = vocabulary.read(self._pool.windows)
        self._size = len(self._words)
        self._with_token, _ = postings(self._pool.windows, self._words.valid)
        self._wanted, self._seed, self._vocabulary = negatives, seed, vocabulary

    def of(self, feature: int) -> Trial:
        windows = self._held_out.of(feature).windows
        silent = ((1 << self._size) - 1) & ~bitset(self._pool.active(feature), self._size)
        same_token = union(self._with_token.get(int(token), 0) for token in np.unique(windows[:, CENTRE]))
        return Trial(
            self._vocabulary.read(windows),
            self._words.take(self._choose(feature, silent)),
            self._words.take(self._choose(feature, silent & same_token)),
        )

    def _choose(self, feature: int, windows: int) -> NDArray[np.int64]:
        rows = members(windows, self._size)
        if len(rows) <= self._wanted:
            return rows
        name = f"{self._seed}:{feature}".encode()
        generator = np.random.default_rng(
            int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
        )
        return np.sort(generator.choice(rows, self._wanted, replace=False))


def judge(rule: Rule, positives: Words, negatives: Words) -> Confusion:
    """The rule's verdicts on windows with the feature and windows without it."""
    verdicts = [*hits(rule, positives).tolist(), *hits(rule, negatives).tolist()]
    return Confusion.count([True] * len(positives) + [False] * len(negatives), verdicts)


def score_rule(feature: int, source: str, rule: Rule, trial: Trial) -> list[FeatureScore]:
    """The label's score, and where there are near misses, its score against those."""
    rows = [_row(feature, source, METHOD, rule, trial.positives, trial.negatives)]
    if len(trial.near_misses) >= MIN_WINDOWS and rows[0].balanced_accuracy is not None:
        rows.append(_row(feature, source, NEAR_MISS, rule, trial.positives, trial.near_misses))
    return rows


def _row(
    feature: int, source: str, method: str, rule: Rule, positives: Words, negatives: Words
) -> FeatureScore:
    if min(len(positives), len(negatives)) < MIN_WINDOWS:
        unjudged = max(1, len(positives) + len(negatives))
        return FeatureScore(feature, source, method, None, None, None, 0, 0, 0, 0, unjudged)
    confusion = judge(rule, positives, negatives)
    score = balanced_accuracy(confusion)
    if score is None:
        raise LabelError(f"Feature {feature} has windows of one kind only.")
    return FeatureScore(feature, source, method, **asdict(score), **asdict(confusion), failed=0)


def score_labels(
    *,
    labels: Sequence[Path],
    examples: Path,
    pool: Path,
    tokens: TokenText,
    out: Path,
    positives: int = 50,
    negatives: int = 50,
    seed: int = 0,
    progress: Callable[[list[int]], Iterable[int]] = iter,
) -> ScoreCounts:
    """Scores every label that has a rule and writes `out` (scores.parquet).

    `labels` are files of labels; `tokens` gives the text of a token id; `positives` and `negatives` are windows per
    label, and so many near misses; `progress` wraps the features gone over, as tqdm does.
    """
    rules, without_rule = read_rules(labels)
    trials = Trials(examples, pool, Vocabulary(tokens), positives=positives, negatives=negatives, seed=seed)
    rows, shuffled = list[FeatureScore](), list[float]()
    stranger: Rule | None = None
    for feature in progress(sorted(rules)):
        trial = trials.of(feature)
        for source, rule in rules[feature]:
            rows.extend(score_rule(feature, source, rule, trial))
            if stranger is not None and rows[-1].balanced_accuracy is not None:
                control = balanced_accuracy(judge(stranger, trial.positives, trial.negatives))
                shuffled.extend([] if control is None else [control.balanced_accuracy])
            stranger = rule
    frame = pl.DataFrame([asdict(row) for row in rows], schema=SCHEMA)
    with replace_atomically(out) as temporary:
        frame.write_parquet(temporary)
    scores = [row.balanced_accuracy for row in rows if row.method == METHOD]
    known = [score for score in scores if score is not None]
    return ScoreCounts(len(known), len(scores) - len(known), without_rule, _mean(known), _mean(shuffled))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def read_rules(labels: Sequence[Path]) -> tuple[Mapping[int, list[tuple[str, Rule]]], int]:
    """The rules of each feature's labels with their sources, and the number of labels without one."""
    rules: dict[int, list[tuple[str, Rule]]] = {}
    without = 0
    for feature, source, rule in _rows_of(labels):
        if rule is None:
            without += 1
        else:
            rules.setdefault(feature, []).append((source, Rule.from_json(rule)))
    return rules, without


def _rows_of(labels: Sequence[Path]) -> Iterator[tuple[int, str, str | None]]:
    for path in labels:
        has_rule = "rule" in scan(path)[1]
        frame = read_columns(path, ("feature", "source", *(["rule"] if has_rule else [])))
        if not has_rule:
            frame = frame.with_columns(rule=pl.lit(None, pl.String))
        yield from frame.collect().iter_rows()


def read_scores(path: Path) -> dict[tuple[int, str], float]:
    """Balanced accuracy by (feature, source), as `LabelSet.best` takes it; near misses are left out."""
    table = read_columns(path, ("feature", "source", "method", "balanced_accuracy")).collect()
    table = table.filter(~pl.col("method").str.ends_with("near_miss")).drop_nulls("balanced_accuracy")
    return {(feature, source): score for feature, source, _, score in table.iter_rows()}
