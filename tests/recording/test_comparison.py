"""Two texts' features side by side, against tokens whose differences can be counted by hand."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from made_recordings import Acts, recording

from neuroscope import alignment as alignment_module
from neuroscope.alignment import Run, align
from neuroscope.diff import CHANGE, OtherFeaturesError, Side, compare, side_of
from neuroscope.ranking import Ranking

Words = list[tuple[str, Acts]]
EVERYTHING = Ranking("none", 1.0, 1000)


def side(answer: Words, **changes: Any) -> Side:
    return side_of(recording(answer, **changes))


def features(found: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["index"]: row for row in found["features"]}


# Alignment.


def test_shared_tokens_are_found_around_what_differs() -> None:
    a, b = [1, 2, 3, 9, 9, 4, 5], [1, 2, 3, 7, 4, 5]
    assert align(a, b) == ([Run(0, 0, 3), Run(5, 4, 2)], True)


@pytest.mark.parametrize(
    ("a", "b", "runs"),
    [
        ([], [], []),
        ([1], [], []),
        ([1, 2], [1, 2], [(0, 0, 2)]),
        ([1, 2], [3, 4], []),
        ([1, 1, 1], [1], [(0, 0, 1)]),
        ([5, 1, 2, 3], [1, 2, 3], [(1, 0, 3)]),
        ([1, 2, 3, 4], [1, 2, 9, 3, 4], [(0, 0, 2), (2, 3, 2)]),
    ],
)
def test_alignments_by_hand(a: list[int], b: list[int], runs: list[tuple[int, int, int]]) -> None:
    assert align(a, b).runs == [Run(*run) for run in runs]
    assert align(b, a).runs == [Run(j, i, n) for i, j, n in runs]


def test_any_alignment_is_a_common_subsequence_and_the_same_from_either_side() -> None:
    made = random.Random(1)
    for _ in range(500):
        a, b = ([made.randrange(4) for _ in range(made.randrange(12))] for _ in range(2))
        runs = align(a, b).runs
        place = (0, 0)
        for run in runs:
            assert run.a >= place[0]
            assert run.b >= place[1]
            assert run.length > 0
            assert a[run.a : run.a + run.length] == b[run.b : run.b + run.length]
            place = run.a + run.length, run.b + run.length
        assert align(b, a).runs == [Run(j, i, n) for i, j, n in runs]
        assert align(a, a).runs == ([Run(0, 0, len(a))] if a else [])


def test_texts_that_repeat_themselves_for_thousands_of_tokens_end_in_time() -> None:
    a, b = [1, *[7] * 4000, 2], [1, *[7, 8] * 2000, 2]
    started = time.process_time()
    assert align(a, b) == ([Run(0, 0, 2), Run(4001, 4001, 1)], False)
    assert time.process_time() - started < 5


def test_two_answers_of_ordinary_length_are_aligned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As frequent as words are: the n-th with a share of about 1/n."""
    made = random.Random(2)
    a, b = (made.choices(range(1, 5001), [1 / n for n in range(1, 5001)], k=600) for _ in range(2))
    assert align(a, b).is_whole
    monkeypatch.setattr(alignment_module, "MOST_STEPS", 0)
    assert not align(a, b).is_whole


# Figures.


def test_features_appear_vanish_and_change() -> None:
    a = side([(" x", {1: 2.0, 2: 4.0, 5: 1.0, 6: 8.0}), (" y", {2: 4.0, 6: 2.0})])
    b = side([(" x", {2: 8.0, 4: 3.0, 5: 1.2, 6: 1.0}), (" y", {2: 2.0, 4: 1.0})])
    found = compare(a, b, EVERYTHING)
    assert {row["index"]: (row["state"], row["change"]) for row in found["features"]} == {
        1: ("vanishes", -2.0),
        4: ("appears", 4.0),
        6: ("weaker", -9.0),
    }
    assert found["counts"] == {"appears": 1, "vanishes": 1, "stronger": 0, "weaker": 1, "alike": 2}
    assert [row["index"] for row in found["features"]] == [6, 4, 1], "by the change in summed activation"
    assert features(found)[6]["a"] == {"tokens": 2, "sum": 10.0, "max": 8.0, "mean": 5.0, "surprise": None}
    assert features(found)[4]["a"] == {"tokens": 0, "sum": 0.0, "max": 0.0, "mean": None, "surprise": 0.0}
    assert found["change_threshold"] == CHANGE
    assert set(found["about"]) >= {"1", "4", "6"}
    assert found["about"]["4"]["label"] == "label of 4"


@pytest.mark.parametrize(
    ("a", "b", "state"),
    [
        (4.0, 3.0, None),
        (4.0, 2.99, "weaker"),
        (3.0, 4.0, None),
        (2.99, 4.0, "stronger"),
        (1e-30, 1.0, "stronger"),
    ],
)
def test_a_change_is_more_than_a_quarter_of_the_larger(a: float, b: float, state: str | None) -> None:
    found = compare(side([(" x", {4: a})]), side([(" x", {4: b})]), EVERYTHING)
    assert [row["state"] for row in found["features"]] == ([] if state is None else [state])
    assert len(found["pairs"]) == len(found["features"])


def test_surprise_sums_what_is_above_zero_and_is_unknown_where_one_is() -> None:
    a = side([(" x", {1: (1.0, -2.0), 2: (1.0, 3.0)}), (" y", {1: (9.0, 4.0), 2: (1.0, None)})])
    found = features(compare(a, side([(" x", {7: 1.0})]), EVERYTHING))
    assert found[1]["a"]["surprise"] == 4.0
    assert found[1]["change_surprise"] == -4.0
    assert found[2]["a"]["surprise"] is None
    assert found[2]["change_surprise"] is None


def test_a_feature_that_is_always_on_does_not_drown_the_others() -> None:
    a = side([(" x", {3: (90.0, 0.1), 4: (1.0, 0.0)})])
    b = side([(" x", {3: (30.0, 0.0), 4: (3.0, 5.0)})])
    by_activation = compare(a, b, EVERYTHING)
    assert [row["index"] for row in by_activation["features"]] == [3, 4]
    by_surprise = compare(a, b, Ranking("surprise", 0.5, 10))
    assert [row["index"] for row in by_surprise["features"]] == [4, 3]
    filtered = compare(a, b, Ranking("frequency", 0.5, 10))
    assert [row["index"] for row in filtered["features"]] == [4]
    assert filtered["filtered_count"] == 1
    assert [one["index"] for one in filtered["pairs"][0]["features"]] == [4], "neither in the tokens"
    assert "3" not in filtered["about"]


def test_unknown_surprise_comes_last_and_unknown_rates_are_kept() -> None:
    a = side([(" x", {1: (1.0, None), 2: (50.0, None), 4: (1.0, 1.0)})])
    a = Side(
        a.title, a.rows, {n: {**row, "firing_rate": None} for n, row in a.features.items()}, a.fingerprint
    )
    b = side([(" y", {})])
    found = compare(a, b, Ranking("frequency_surprise", 0.0, 10))
    assert [row["index"] for row in found["features"]] == [4, 2, 1]


def test_top_k_and_min_activation_cut() -> None:
    a, b = side([(" x", {1: 1.0, 2: 2.0, 4: 4.0})]), side([(" x", {5: 0.5})])
    assert [row["index"] for row in compare(a, b, Ranking("none", 1, 2))["features"]] == [4, 2]
    assert [row["index"] for row in compare(a, b, Ranking("none", 1, 9, 2.0))["features"]] == [4, 2]
    assert compare(a, b, Ranking("none", 1, 2))["counts"]["vanishes"] == 3, "all of them are counted"


def test_the_shared_tokens_have_figures_of_their_own() -> None:
    a = side([(" x", {4: 1.0}), (" only", {4: 100.0}), (" z", {4: 2.0})])
    b = side([(" x", {4: 1.0}), (" z", {4: 8.0})])
    found = compare(a, b, EVERYTHING)
    assert found["runs"] == [[0, 0, 1], [2, 1, 1]]
    row = features(found)[4]
    assert (row["a"]["sum"], row["b"]["sum"]) == (103.0, 9.0)
    assert (row["aligned"]["a"]["sum"], row["aligned"]["b"]["sum"]) == (3.0, 9.0)
    assert found["pairs"] == [
        {"a": 2, "b": 1, "differing": 1, "features": [{"index": 4, "state": "stronger", "a": 2.0, "b": 8.0}]}
    ]


def test_control_tokens_are_aligned_and_are_in_no_figure() -> None:
    prompt: Words = [("<s>", {9: 100.0}), (" hi", {4: 1.0})]
    a = side_of(recording([(" a", {4: 1.0}), ("", {9: 50.0})], prompt=prompt, total_tokens=1))
    b = side_of(recording([(" a", {4: 1.0}), ("", {10: 50.0})], prompt=prompt, total_tokens=1))
    found = compare(a, b, EVERYTHING)
    assert found["runs"] == [[0, 0, 4]]
    assert (found["features"], found["pairs"]) == ([], [])
    assert [t["content"] for t in found["a"]["tokens"]] == [False, True, True, False]
    assert [t["place"] for t in found["a"]["tokens"]] == ["prompt", "prompt", "answer", "answer"]


def test_a_pair_names_those_that_differ_most_and_counts_all() -> None:
    found = compare(side([(" x", {n: float(n + 1) for n in range(20)})]), side([(" x", {})]), EVERYTHING)
    (pair,) = found["pairs"]
    assert pair["differing"] == 20
    assert [one["index"] for one in pair["features"]] == list(range(19, 9, -1))


@pytest.mark.parametrize("key", ["sae_sha256", "layer", "d_sae", "input_norm", "tokenizer_sha256"])
def test_features_of_different_saes_are_not_compared(key: str) -> None:
    a, b = side([(" x", {})]), side([(" x", {})])
    other = Side(b.title, b.rows, b.features, {**b.fingerprint, key: "another"})
    with pytest.raises(OtherFeaturesError, match="The two cannot be compared"):
        compare(a, other, EVERYTHING)


def test_two_models_with_one_sae_are_compared() -> None:
    b = side([(" x", {})])
    other = Side(b.title, b.rows, b.features, {**b.fingerprint, "model": "another", "model_revision": "1"})
    assert compare(side([(" x", {})]), other, EVERYTHING)["features"] == []


# What holds for any two.


def anything(made: random.Random) -> Side:
    words = [
        (
            made.choice(" abc"),
            {
                f: (round(made.uniform(0.1, 9), 3), made.choice([None, round(made.uniform(-2, 5), 3)]))
                for f in made.sample(range(12), made.randrange(6))
            },
        )
        for _ in range(made.randrange(1, 15))
    ]
    return side(words)


def mirrored(found: dict[str, Any]) -> dict[str, Any]:
    """What must come out when the two are swapped."""
    states = {"appears": "vanishes", "vanishes": "appears", "stronger": "weaker", "weaker": "stronger"}
    turned = {
        **found,
        "a": found["b"],
        "b": found["a"],
        "runs": [[b, a, n] for a, b, n in found["runs"]],
        "counts": {states.get(state, state): count for state, count in found["counts"].items()},
    }
    turned["features"] = [
        {
            **row,
            "state": states[row["state"]],
            "change": -row["change"],
            "change_surprise": None if row["change_surprise"] is None else -row["change_surprise"],
            "a": row["b"],
            "b": row["a"],
            "aligned": {"a": row["aligned"]["b"], "b": row["aligned"]["a"]},
        }
        for row in found["features"]
    ]
    turned["pairs"] = [
        {
            **pair,
            "a": pair["b"],
            "b": pair["a"],
            "features": [
                {**one, "state": states[one["state"]], "a": one["b"], "b": one["a"]}
                for one in pair["features"]
            ],
        }
        for pair in found["pairs"]
    ]
    return turned


def by_hand(side: Side, index: int) -> float:
    return sum(value for row in side.rows for f, value, _ in row["top_features"] if f == index)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_two_are(seed: int) -> None:
    made = random.Random(seed)
    a, b = anything(made), anything(made)
    ranking = Ranking(made.choice(["none", "frequency", "surprise", "frequency_surprise"]), 0.5, 1000)
    found = compare(a, b, ranking)
    assert compare(b, a, ranking) == mirrored(found)
    for row in found["features"]:
        one, other = by_hand(a, row["index"]), by_hand(b, row["index"])
        assert (row["a"]["sum"], row["b"]["sum"]) == pytest.approx((one, other))
        assert row["change"] == pytest.approx(other - one)
        assert (one > 0, other > 0) == (row["state"] != "appears", row["state"] != "vanishes")
        assert row["aligned"]["a"]["tokens"] <= row["a"]["tokens"]
    same = compare(a, a, ranking)
    assert (same["features"], same["pairs"], same["filtered_count"]) == ([], [], 0)
    assert same["runs"] == [[0, 0, len(a.rows)]]
