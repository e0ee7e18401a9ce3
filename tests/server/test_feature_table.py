"""All features at once: the table for pages that search by themselves, and how often features fire."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from documented import schema, validate
from scripted import WIDTH, scripted
from scripted_results import LABELLED, label_of, write_results
from serving import Server, http, raw_request, serving

from neuroscope.server.catalogue import Catalogue
from neuroscope.server.feature_table import PIECE, densities, feature_table

TABLE, DENSITIES = "/v1/features/table", "/v1/features/densities"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With whole results, which stay as they are."""
    root = tmp_path_factory.mktemp("table")
    write_results(root / "results/tiny")
    with serving(root, env={"SCRIPTED_RESULTS": "1"}) as running:
        yield running
    assert "Traceback" not in running.output


@pytest.fixture(scope="module")
def table(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = server.get(TABLE).json()
    return found


def test_the_table_says_of_every_feature_what_a_search_says(server: Server, table: dict[str, Any]) -> None:
    rows = server.get("/v1/features/search?limit=500").json()["features"]
    assert len(rows) == table["width"] == WIDTH
    for row in rows:
        n = row["feature"]
        assert table["label"][n] == (None if row["source"] is None else row["label"])
        source = table["source"][n]
        assert (None if source is None else table["sources"][source]) == row["source"]
        assert table["score"][n] == row["balanced_accuracy"]
        assert table["firing_rate"][n] == row["firing_rate"]
        assert table["max_activation"][n] == row["max_activation"]
    assert table["label"][10] == label_of(10)
    assert table["label"][LABELLED:] == [None] * (WIDTH - LABELLED)
    assert table["firing_rate"][:3] == [0, 0.01, 0.02]


def test_both_routes_are_as_documented(server: Server, table: dict[str, Any]) -> None:
    validate("features", schema("features", "FeatureTable"), table)
    validate("features", schema("features", "Densities"), server.get(DENSITIES).json())


def test_the_table_is_sent_once_and_then_confirmed_compressed_or_not(
    server: Server, table: dict[str, Any]
) -> None:
    tags = set()
    for encoding in ("gzip", "identity", "br, gzip;q=0", "*;q=0"):
        asked = {"Accept-Encoding": encoding}
        answer = server.get(TABLE, headers=asked)
        assert answer.json() == table
        assert (answer.headers.get("content-encoding") == "gzip") == (encoding == "gzip")
        assert {"Accept-Encoding", "Origin"} <= set(answer.headers["vary"].replace(" ", "").split(","))
        again = server.get(TABLE, headers={**asked, "If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        tags.add(answer.headers["etag"])
    assert len(tags) == 2, "what a proxy keeps of one form is never taken for the other"
    refused = server.get(TABLE, headers={"If-Match": '"other"'})
    assert (refused.status_code, refused.json()["error"]["code"]) == (412, "precondition_failed")
    assert "content-encoding" not in refused.headers


def test_what_is_sent_compressed_is_the_same_bytes(server: Server) -> None:
    def asked(encoding: str) -> bytes:
        head = f"GET {TABLE} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: {encoding}\r\n\r\n"
        return raw_request(server.features_port, head.encode()).partition(b"\r\n\r\n")[2]

    assert gzip.decompress(asked("gzip")) == asked("identity")


def test_densities_are_counted_by_quarters_of_a_decade(server: Server) -> None:
    """Feature f fires on f of 100 tokens: 1% lies on the border -2, 2% and 3% in the two bins above, and so on."""
    found = server.get(DENSITIES).json()
    assert (found["width"], found["unknown"], found["never_fired"]) == (WIDTH, 0, 1)
    assert found["edges"] == [-2, -1.75, -1.5, -1.25, -1, -0.75, -0.5, -0.25, 0]
    expected = [0] * 8
    for f in range(1, WIDTH):
        expected[math.floor((math.log10(f / 100) + 2) * 4)] += 1
    assert found["counts"] == expected == [1, 2, 2, 4, 8, 14, 0, 0]


@pytest.mark.parametrize(
    ("rates", "edges", "counts"),
    [
        ([None, None], [], []),
        ([0.0, 0.0], [], []),
        ([1.0, 1.0, 0.0], [-1, -0.75, -0.5, -0.25, 0], [0, 0, 0, 2]),
        ([0.1, 1.0, None], [-1, -0.75, -0.5, -0.25, 0], [1, 0, 0, 1]),
        ([1e-9], [-9 + n / 4 for n in range(37)], [1] + [0] * 35),
    ],
)
def test_densities_of_few_known_features(
    rates: list[float | None], edges: list[float], counts: list[int]
) -> None:
    found = densities([{"firing_rate": rate} for rate in rates])
    assert (found["edges"], found["counts"]) == (edges, counts)
    assert found["unknown"] + found["never_fired"] + sum(counts) == len(rates)


def test_without_results_and_statistics_the_table_has_nulls() -> None:
    loaded = scripted(with_stats=False)
    found = json.loads(feature_table(loaded, Catalogue(loaded).rows).plain.body)
    assert found["firing_rate"] == found["max_activation"] == found["score"] == [None] * WIDTH
    assert (found["sources"], found["source"]) == ([], [None] * WIDTH)
    assert found["label"][0] == "label of 0"


def test_hostile_labels_stay_labels() -> None:
    labels = ('<img src=x onerror="1">', "\u2028", "\x00", '","', "\ud800", "x" * 10_000)
    many = PIECE + 5  # more than one piece
    loaded = scripted()
    rows = [
        {"label": labels[n % 6], "source": "tokens", "balanced_accuracy": 1 / 3}
        | {"firing_rate": 1e-7 * n, "max_activation": 123456.789}
        for n in range(many)
    ]
    found = json.loads(feature_table(replace(loaded, width=many), rows).plain.body)
    assert found["label"][:6] == [*labels[:4], "?", labels[5]]
    assert {len(found[name]) for name in ("label", "source", "score", "firing_rate")} == {many}
    assert (found["score"][0], found["max_activation"][-1], found["firing_rate"][3]) == (0.3333, 123500, 3e-7)


def test_a_table_of_many_features_is_made_in_reasonable_time() -> None:
    """131,072 features; the limit is ten times what it takes, the figures are printed."""
    loaded, many = scripted(), 131_072
    rows = [
        {"label": f"the word number {n} and what follows it", "source": "tokens", "balanced_accuracy": 0.75}
        | {"firing_rate": n / 1e7, "max_activation": n / 7}
        for n in range(many)
    ]
    started = time.perf_counter()
    found = feature_table(replace(loaded, width=many), rows)
    seconds = time.perf_counter() - started
    print(f"{len(found.plain.body):,} bytes, {len(found.zipped.body):,} compressed, {seconds:.2f} s")
    assert seconds < 30
    assert len(found.zipped.body) < len(found.plain.body) / 3


def test_tokens_can_be_given_as_they_are(server: Server) -> None:
    url = f"{server.features_url}/v1/features/encode?features=4&filter=none"
    answer = http.post(url, json={"token_ids": [3, 1.0, 3]})
    assert answer.status_code == 200, answer.text
    tokens = answer.json()["tokens"]
    assert [token["token"] for token in tokens] == ["3 ", "1 ", "3 "]
    assert tokens[0]["top_features"] == [
        {"index": 4, "label": "an imported name", "activation": 5.0, "surprise": pytest.approx(3.0)}
    ]
    assert tokens[1]["top_features"] == []


@pytest.mark.parametrize("given", [[], [-1], ["1"], [True], [1.5], [None], 3, "1 2", {"0": 1}, [[1]]])
def test_what_are_no_tokens_is_refused_by_name(server: Server, given: Any) -> None:
    answer = http.post(f"{server.features_url}/v1/features/encode", json={"token_ids": given})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "token_ids"
    if isinstance(given, list) and given:
        assert error["message"].startswith("'token_ids[0]' is ")
        assert error["message"].endswith("; it must be a whole number of 0 or more.")
    else:
        assert error["message"].endswith("; it must be a list of token ids, with one at least.")


def test_only_one_thing_is_encoded_at_a_time(server: Server) -> None:
    both = http.post(f"{server.features_url}/v1/features/encode", json={"token_ids": [1], "text": "a"})
    assert (both.status_code, both.json()["error"]["param"]) == (400, "text")
