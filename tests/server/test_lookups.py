"""What the features port knows about features: pages, lists and every label, against results one can compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from documented import schema, validate
from scripted import FINGERPRINT, WIDTH, scripted
from scripted_results import LABELLED, label_of, write_results
from serving import Server, serving

from neuroscope.known import Known
from neuroscope.server.catalogue import Catalogue, Search, folded
from neuroscope.server.feature_page import ExamplesWanted, feature_page
from neuroscope.stats import HISTOGRAM_EDGES
from neuroscope.store import FeatureLabel


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With whole results, which stay as they are."""
    root = tmp_path_factory.mktemp("lookups")
    write_results(root / "results/tiny")
    with serving(root, env={"SCRIPTED_RESULTS": "1"}) as running:
        yield running
    assert "Traceback" not in running.output


@pytest.fixture(scope="module")
def page(server: Server) -> dict[str, Any]:
    """Of feature 4, which has everything."""
    found: dict[str, Any] = server.get("/v1/features/4?examples=all&n=2").json()
    return found


def search(server: Server, **query: str | int) -> dict[str, Any]:
    answer = server.get("/v1/features/search", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def found_by(server: Server, **query: str | int) -> list[int]:
    return [row["feature"] for row in search(server, **query)["features"]]


def test_a_page_tells_every_label_with_where_it_came_from(page: dict[str, Any]) -> None:
    assert (page["feature"], page["label"], page["source"]) == (4, "an imported name", "neuronpedia")
    assert [
        (row["rank"], row["source"], row["label"], row["model"], row["method"]) for row in page["labels"]
    ] == [
        (1, "neuronpedia", "an imported name", "gpt-4o-mini", "oai_token-act-pair"),
        (2, "tokens", "label of 4", None, "distinctive tokens"),
    ]
    (score,) = page["scores"]
    assert (score["source"], score["balanced_accuracy"], score["low"], score["high"]) == (
        "tokens",
        0.54,
        0.49,
        0.59,
    )
    assert page["states"] == [
        {"source": "claude", "state": "refused", "reason": "it has 16 words (at most 15)"},
        {"source": "tokens", "state": "labelled", "reason": None},
    ]


def test_the_shown_label_has_its_score_and_interval(server: Server) -> None:
    page = server.get("/v1/features/10").json()
    assert (page["label"], page["confidence"]) == ("label of 10", "high")
    assert (page["balanced_accuracy"], page["low"], page["high"], page["score_method"]) == (
        0.6,
        0.55,
        0.65,
        "rule",
    )


def test_a_page_tells_how_the_feature_fires(page: dict[str, Any]) -> None:
    """40 firings at 1 and 3 by turns: mean 2, variance 1; over 1,000 tokens the mean is 0.08."""
    every, chat = page["strata"]
    assert (every["stratum"], every["n_tokens"], every["n_fired"]) == ("all", 1000, 40)
    assert (every["firing_rate"], every["mean_firing"], every["variance_firing"]) == (0.04, 2.0, 1.0)
    assert (every["mean_all"], every["max_activation"]) == (0.08, 3.0)
    assert every["variance_all"] == pytest.approx(40 * 5 / 1000 - 0.08**2)
    assert (chat["stratum"], chat["n_tokens"], chat["firing_rate"]) == ("chat", 500, 0.08)
    assert page["stats_in_use"] == {
        "source": "measured",
        "firing_rate": 0.08,
        "mean_firing": 2.0,
        "variance_firing": 1.0,
        "max_activation": 3.0,
    }
    assert page["log_density"] == pytest.approx(math.log10(0.04))


def test_a_histogram_can_be_drawn(page: dict[str, Any]) -> None:
    edges, counts = page["histogram_edges"], page["histogram"]
    assert edges == HISTOGRAM_EDGES.tolist()
    assert len(counts) == len(edges) + 1
    bins = [n for n, count in enumerate(counts) if count]
    assert [counts[n] for n in bins] == [20, 20]
    assert all(edges[n - 1] <= value < edges[n] for n, value in zip(bins, (1.0, 3.0), strict=True))


def test_examples_of_every_kind_come_with_their_tokens(page: dict[str, Any]) -> None:
    assert [(row["kind"], row["rank"]) for row in page["examples"]] == [
        (kind, rank) for kind in ("top", "sample", "held_out") for rank in (0, 1)
    ]
    first, second = page["examples"][:2]
    assert (first["activation"], first["tokens"], first["center"]) == (9.5, [" the", " cat", " sat"], 1)
    assert (second["tokens"], second["center"]) == ([" cat", " sat"], 0)
    assert second["window"] == [None] * 12 + [1, 2] + [None] * 11
    for row in (first, second):
        assert row["tokens"][row["center"]] == row["token"] == " cat"
        assert row["text_before"] == "".join(row["tokens"][: row["center"]])
        assert row["text_after"] == "".join(row["tokens"][row["center"] + 1 :])


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("", ["top"] * 3),
        ("?n=1", ["top"]),
        ("?examples=held_out&n=1", ["held_out"]),
        ("?examples=sample,top&n=1", ["sample", "top"]),
        ("?examples=none", []),
    ],
)
def test_examples_are_those_asked_for(server: Server, query: str, kinds: list[str]) -> None:
    assert [row["kind"] for row in server.get(f"/v1/features/4{query}").json()["examples"]] == kinds


def test_tokens_promoted_and_neighbours_are_told(page: dict[str, Any]) -> None:
    assert [(row["kind"], row["token"], row["weight"]) for row in page["logits"]] == [
        ("promoted", " cat", 1.5),
        ("suppressed", " the", -1.0),
    ]
    assert [(row["other"], row["label"], row["cofiring"], row["n_both"]) for row in page["neighbours"]] == [
        (30, "feature_30", 0.5, 20),
        (5, label_of(5), 0.25, 10),
    ]
    assert page["neuronpedia"] == "https://www.neuronpedia.org/scripted-model/7-scripted/4"
    assert page["degraded"] == []


def test_a_dead_feature_and_one_without_a_label_are_whole_pages(server: Server, page: dict[str, Any]) -> None:
    dead, nameless = server.get("/v1/features/0").json(), server.get("/v1/features/30").json()
    assert dead.keys() == nameless.keys() == page.keys()
    assert (dead["firing_rate"], dead["mean_firing"], dead["log_density"]) == (0.0, None, None)
    assert (nameless["label"], nameless["source"], nameless["labels"]) == ("feature_30", None, [])
    assert nameless["states"] == [{"source": "tokens", "state": "insufficient", "reason": "3 examples"}]


def test_a_page_without_results_has_the_same_fields(page: dict[str, Any]) -> None:
    loaded = scripted()
    found = feature_page(loaded, 5, ExamplesWanted(("top",), 20))
    assert found.keys() == page.keys()
    assert (found["label"], found["firing_rate"], found["max_activation"]) == ("label of 5", 0.1, 9.0)
    assert found["stats_in_use"]["source"] == "measured"
    assert (found["examples"], found["strata"], found["histogram"]) == ([], [], None)
    nothing = feature_page(scripted(with_stats=False), 5, ExamplesWanted((), 20))
    assert (nothing["stats_in_use"], nothing["firing_rate"], nothing["log_density"]) == (None, None, None)


def test_a_label_of_an_import_says_so_without_results() -> None:
    named = (FeatureLabel(2, "what it is called there", "neuronpedia", None, None),)
    labels = tuple("what it is called there" if i == 2 else f"feature_{i}" for i in range(WIDTH))
    loaded = scripted().with_known(Known(None, None, labels, {"neuronpedia": 1}, None, (), named=named))
    found = feature_page(loaded, 2, ExamplesWanted((), 20))
    assert (found["label"], found["source"]) == ("what it is called there", "neuronpedia")
    rows = Catalogue(loaded).search(Search("CALLED", False, "score", "desc", 50, 0))["features"]
    assert [(row["feature"], row["source"], row["firing_rate"]) for row in rows] == [(2, "neuronpedia", None)]


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("LABEL of 1", [19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 1]),  # best scored first
        ("strasse", [5]),
        ("STRASSE", [5]),
        ("straße", [5]),
        ("été", [6]),
        ("e\u0301te\u0301", [6]),
        ("CAFÉ", [8]),
        ("猫", [9]),
        ("%", [7]),
        ("_", [7]),
        ("100% of _X_", [7]),
        ("'", []),
        ("' OR 1=1 --", []),
        ("feature_30", []),  # a number is no label
        ("an imported", [4]),
        ("  imported  ", [4]),
        ("label of 4", []),  # not the one shown
    ],
)
def test_a_search_takes_its_text_literally_in_any_case(
    server: Server, text: str, features: list[int]
) -> None:
    found = search(server, q=text)
    assert [row["feature"] for row in found["features"]] == features
    assert found["total"] == len(features)


def test_a_search_in_all_labels_says_which_one_it_found(server: Server) -> None:
    found = search(server, q="LABEL of 4", labels="all")
    (row,) = found["features"]
    assert (row["feature"], row["label"]) == (4, "an imported name")
    assert row["matched"] == [{"source": "tokens", "label": "label of 4"}]


def test_a_row_says_what_a_list_shows(server: Server) -> None:
    (row,) = search(server, q="label of 10")["features"]
    assert row == {
        "feature": 10,
        "label": "label of 10",
        "source": "tokens",
        "confidence": "high",
        "balanced_accuracy": 0.6,
        "firing_rate": 0.1,
        "max_activation": 3.0,
    }


def test_without_a_text_every_feature_is_listed_page_by_page(server: Server) -> None:
    pages = [search(server, limit=10, offset=offset) for offset in (0, 10, 20, 30, 40)]
    assert [page["total"] for page in pages] == [WIDTH] * 5
    assert [row["feature"] for page in pages for row in page["features"]] == list(range(WIDTH))
    assert pages[3]["features"][-1]["label"] == "feature_31"
    assert search(server, q="")["total"] == WIDTH


@pytest.mark.parametrize(
    ("query", "features"),
    [
        ({"sort": "firing_rate"}, [31, 30, 29]),
        ({"sort": "firing_rate", "order": "asc"}, [0, 1, 2]),
        ({"sort": "score"}, [27, 26, 25]),
        ({"sort": "score", "order": "asc"}, [0, 1, 2]),
        ({"sort": "max"}, [1, 2, 3]),  # equal ones by number; feature 0 never fires
        ({"sort": "max", "order": "asc"}, [0, 1, 2]),
        ({"sort": "label"}, [7, 4, 8]),  # 100%, an imported, café
        ({"sort": "feature", "order": "desc"}, [31, 30, 29]),
        ({"q": "label of 2", "sort": "feature", "offset": 1}, [20, 21, 22]),
    ],
)
def test_features_are_sorted_as_asked(server: Server, query: dict[str, str], features: list[int]) -> None:
    assert found_by(server, limit=3, **query) == features


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_features_without_a_score_come_last_either_way(server: Server, order: str) -> None:
    assert found_by(server, sort="score", order=order)[-5:] == [4, 28, 29, 30, 31]


def test_labels_are_sent_once_and_then_confirmed(server: Server) -> None:
    first = server.get("/v1/features/labels")
    body = first.json()
    assert (body["sae_id"], body["width"], len(body["labels"])) == ("scripted/sae", WIDTH, WIDTH)
    assert [body["labels"][str(i)] for i in (5, LABELLED)] == [label_of(5), f"feature_{LABELLED}"]
    again = server.get("/v1/features/labels", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = server.get("/v1/features/labels", headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.json()) == (200, body)
    refused = server.get("/v1/features/labels", headers={"If-Match": '"other"'})
    assert (refused.status_code, refused.json()["error"]["code"]) == (412, "precondition_failed")
    assert server.get("/v1/features/labels", headers={"If-Match": first.headers["etag"]}).json() == body


def test_all_of_it_is_as_documented(server: Server, page: dict[str, Any]) -> None:
    pages = [page, *(server.get(f"/v1/features/{index}").json() for index in (0, 5, 30))]
    pages += [feature_page(scripted(with_stats=known), 5, ExamplesWanted((), 1)) for known in (True, False)]
    for found in pages:
        validate("features", schema("features", "Feature"), found)
    for query in ({}, {"q": "4", "labels": "all"}, {"q": "nowhere"}, {"sort": "max", "offset": 30}):
        validate("features", schema("features", "Found"), search(server, **query))
    validate("features", schema("features", "Labels"), server.get("/v1/features/labels").json())


def test_texts_are_compared_without_their_spelling() -> None:
    assert folded("STRASSE") == folded("straße")
    assert folded("É") == folded("e\u0301")
    assert folded("ﬁre") == folded("FIRE")
    assert FINGERPRINT.d_sae == WIDTH
