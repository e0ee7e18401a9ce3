"""What differs between the features of two texts: those that appear, vanish or change, and where.

Pure: two sequences of tokens with their unfiltered activations in, one record out. Control tokens (BOS, role headers,
ends of turns) are aligned with the others and are in no figure, as in all statistics of features.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscope.alignment import Alignment, align
from neuroscope.errors import ArtefactError
from neuroscope.ranking import Ranking
from neuroscope.recording import Recording

CHANGE = 0.25
"""A feature is stronger or weaker where its activation differs by more than this share of the larger one."""
MOST_PER_PAIR = 10
COMPARED = {
    "sae_sha256": "SAE file",
    "layer": "layer",
    "d_sae": "SAE width",
    "input_norm": "input norm",
    "tokenizer_sha256": "tokenizer",
}
"""What must agree for feature 12 of one to be feature 12 of the other. Two models may share an SAE."""

Row = dict[str, Any]


class OtherFeaturesError(ArtefactError):
    """The two are about features of different SAEs or layers: their numbers mean different things."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. `rows` are a recording's tokens with `place` and `content`."""

    title: str
    rows: Sequence[Row]
    features: Mapping[str, Row]
    """Label and statistics by index."""
    fingerprint: Mapping[str, Any]


def side_of(recording: Recording) -> Side:
    """A recording's prompt and answer; the end of turn is no content."""
    prompt = [{**row, "place": "prompt"} for row in recording.prompt]
    answer = [
        {**row, "place": "answer", "content": n < recording.total_tokens}
        for n, row in enumerate(recording.tokens)
    ]
    return Side(recording.title, prompt + answer, recording.features, recording.fingerprint)


def compare(a: Side, b: Side, ranking: Ranking) -> Row:
    """The differences as a record for JSON; `ranking` filters, orders and cuts features as it does on the stream.

    `change` is the summed activation in b less that in a; `surprise` sums the z-scores above zero, so that a feature
    which is always on weighs little. Raises OtherFeaturesError.
    """
    refuse_other_features(a, b)
    features = {**b.features, **a.features}
    frequent = _frequent(features, ranking)
    alignment = align([row["token_id"] for row in a.rows], [row["token_id"] for row in b.rows])
    pairs = list(_content_pairs(a, b, alignment))
    least = ranking.min_activation
    whole = [_sums((row for row in side.rows if row["content"]), least) for side in (a, b)]
    shared = _sums((a.rows[i] for i, _ in pairs), least), _sums((b.rows[j] for _, j in pairs), least)
    rows = [
        _feature(index, whole[0], whole[1], *shared) for index in sorted(whole[0].keys() | whole[1].keys())
    ]
    differing = [row for row in rows if row["state"] != "alike"]
    kept = [row for row in differing if row["index"] not in frequent]
    kept.sort(key=lambda row: _order(row, ranking))
    shown = kept[: ranking.top_k]
    told = _told_pairs(a, b, pairs, frequent, least)
    named = {row["index"] for row in shown} | {one["index"] for pair in told for one in pair["features"]}
    return {
        "change_threshold": CHANGE,
        "ranking": {
            "filter": ranking.filter,
            "threshold": ranking.threshold,
            "top_k": ranking.top_k,
            "min_activation": ranking.min_activation,
        },
        "a": _told_side(a),
        "b": _told_side(b),
        "runs": [list(run) for run in alignment.runs],
        "is_whole": alignment.is_whole,
        "counts": {
            state: Counter(row["state"] for row in rows if row["index"] not in frequent)[state]
            for state in ("appears", "vanishes", "stronger", "weaker", "alike")
        },
        "filtered_count": len(differing) - len(kept),
        "features": shown,
        "pairs": told,
        "about": {str(index): features[str(index)] for index in sorted(named)},
    }


def strongest(
    rows: Iterable[Row], features: Mapping[str, Row], ranking: Ranking
) -> list[tuple[int, FeatureSum]]:
    """The features with the largest summed surprise over some tokens, where it is known, else summed activation."""
    hidden = _frequent(features, ranking)
    sums = _sums(rows, ranking.min_activation)
    found = [(index, total) for index, total in sums.items() if index not in hidden]
    found.sort(key=lambda one: (one[1].surprise is None, -(one[1].surprise or 0.0), -one[1].sum, one[0]))
    return found[: ranking.top_k]


def refuse_other_features(a: Side, b: Side) -> None:
    """Raises OtherFeaturesError where a number does not mean the same feature, or a token id the same token."""
    differences = [
        f"{words} {str(a.fingerprint[key])[:16]} and {str(b.fingerprint[key])[:16]}"
        for key, words in COMPARED.items()
        if a.fingerprint[key] != b.fingerprint[key]
    ]
    if differences:
        raise OtherFeaturesError(
            f"The two cannot be compared, their features are not the same ones: {'; '.join(differences)}. "
            "Compare recordings of one pairing."
        )


@dataclass(slots=True)
class FeatureSum:
    """One feature over some tokens."""

    tokens: int = 0
    sum: float = 0.0
    max: float = 0.0
    surprise: float | None = 0.0

    def add(self, activation: float, surprise: float | None) -> None:
        self.tokens += 1
        self.sum += activation
        self.max = max(self.max, activation)
        if surprise is None or self.surprise is None:  # one unknown, and the sum is
            self.surprise = None
        else:
            self.surprise += max(surprise, 0.0)

    def told(self) -> Row:
        mean = self.sum / self.tokens if self.tokens else None
        return {
            "tokens": self.tokens,
            "sum": self.sum,
            "max": self.max,
            "mean": mean,
            "surprise": self.surprise,
        }


Sums = Mapping[int, FeatureSum]


def _sums(rows: Iterable[Row], at_least: float) -> Sums:
    found: defaultdict[int, FeatureSum] = defaultdict(FeatureSum)
    for row in rows:
        for index, activation, surprise in row["top_features"]:
            if activation >= at_least:
                found[index].add(activation, surprise)
    return found


def _feature(index: int, a: Sums, b: Sums, shared_a: Sums, shared_b: Sums) -> Row:
    one, other = a.get(index, FeatureSum()), b.get(index, FeatureSum())
    is_unknown = one.surprise is None or other.surprise is None
    return {
        "index": index,
        "state": _state(one.sum, other.sum),
        "change": other.sum - one.sum,
        "change_surprise": None if is_unknown else (other.surprise or 0.0) - (one.surprise or 0.0),
        "a": one.told(),
        "b": other.told(),
        "aligned": {
            "a": shared_a.get(index, FeatureSum()).told(),
            "b": shared_b.get(index, FeatureSum()).told(),
        },
    }


def _state(a: float, b: float) -> str:
    if not a or not b:
        return "alike" if a == b else "appears" if b else "vanishes"
    if abs(b - a) <= CHANGE * max(a, b):
        return "alike"
    return "stronger" if b > a else "weaker"


def _order(row: Row, ranking: Ranking) -> tuple[float, ...]:
    by_surprise = row["change_surprise"] if ranking.orders_by_surprise else None
    known = () if not ranking.orders_by_surprise else (by_surprise is None, -abs(by_surprise or 0.0))
    return (*known, -abs(row["change"]), row["index"])


def _frequent(features: Mapping[str, Row], ranking: Ranking) -> set[int]:
    if not ranking.drops_frequent:
        return set()
    rates = {int(index): row["firing_rate"] for index, row in features.items()}
    return {index for index, rate in rates.items() if rate is not None and rate > ranking.threshold}


def _content_pairs(a: Side, b: Side, alignment: Alignment) -> Iterator[tuple[int, int]]:
    for run in alignment.runs:
        for n in range(run.length):
            if a.rows[run.a + n]["content"] and b.rows[run.b + n]["content"]:
                yield run.a + n, run.b + n


def _told_pairs(
    a: Side, b: Side, pairs: Sequence[tuple[int, int]], hidden: set[int], at_least: float
) -> list[Row]:
    """The pairs of the same token whose features differ, with those that differ most."""
    told = []
    for i, j in pairs:
        one, other = (
            {f: value for f, value, _ in row["top_features"] if value >= at_least and f not in hidden}
            for row in (a.rows[i], b.rows[j])
        )
        found = []
        for index in one.keys() | other.keys():
            values = one.get(index, 0.0), other.get(index, 0.0)
            if (state := _state(*values)) != "alike":
                found.append({"index": index, "state": state, "a": values[0], "b": values[1]})
        found.sort(key=lambda row: (-abs(row["b"] - row["a"]), row["index"]))
        if found:
            told.append({"a": i, "b": j, "differing": len(found), "features": found[:MOST_PER_PAIR]})
    return told


def _told_side(side: Side) -> Row:
    names = ("place", "token", "token_id", "position", "content", "l0", "fvu")
    return {"title": side.title, "tokens": [{name: row[name] for name in names} for row in side.rows]}
