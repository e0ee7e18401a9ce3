"""The features stream over the wire: events, ids, replay, gaps, heartbeats, and each subscriber's own view."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from typing import Any

import pytest
from scripted import ALWAYS_ON, LAYER, WIDTH
from serving import Event, EventStream, Server, http, wait_until


def subscribe(server: Server, query: str = "", **headers: str) -> EventStream:
    subscriber = EventStream(server.features_port, f"/v1/features/stream{query}", headers)
    assert subscriber.status == 200
    return subscriber


def generation(server: Server, query: str = "", content: str = "one two") -> list[Event]:
    """The events of one answer, as a subscriber with that query sees them."""
    with subscribe(server, query) as subscriber:
        next(subscriber.blocks())
        server.chat(content)
        return subscriber.until("generation_complete")


def last_id(server: Server) -> str:
    """The id of the newest event."""
    with subscribe(server) as subscriber:
        found = next(subscriber.blocks()).id
    assert found is not None
    return found


def test_features_stream_sse(server: Server, stream: EventStream) -> None:
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["cache-control"] == "no-cache, no-transform"
    assert stream.headers["x-accel-buffering"] == "no"
    answer = server.chat("one two").json()
    *activations, complete = stream.until("generation_complete")
    assert [event.name for event in activations] == ["feature_activation"] * 3
    assert activations[1].data == {
        "completion_id": answer["id"],
        "token_index": 1,
        "token": " two",
        "token_id": 1001,
        "position": 3,
        "layer": LAYER,
        "l0": 3,
        "fvu": 0.125,
        "top_features": [
            {"index": 5, "label": "label of 5", "activation": 5.0, "surprise": pytest.approx(3, abs=1e-5)},
            {
                "index": 21,
                "label": "label of 21",
                "activation": 2.5,
                "surprise": pytest.approx(0.5, abs=1e-5),
            },
        ],
        "filtered_count": 1,
    }
    assert complete.data == {
        "completion_id": answer["id"],
        "model": "scripted/model",
        "total_tokens": 2,
        "finish_reason": "stop",
        "degraded": [],
    }


def test_features_labels_endpoint(server: Server) -> None:
    labels = server.get("/v1/features/labels").json()
    assert set(labels) == {"sae_id", "width", "labels"}
    assert labels["sae_id"] == "scripted/sae"
    assert labels["width"] == WIDTH
    assert sorted(map(int, labels["labels"])) == list(range(WIDTH))
    assert labels["labels"]["5"] == "label of 5"
    assert labels["labels"]["31"] == "feature_31"


def test_features_stream_no_generation(server: Server) -> None:
    with subscribe(server) as subscriber:
        blocks = subscriber.blocks()
        started = time.monotonic()
        quiet = [next(blocks) for _ in range(4)]  # the opening and three heartbeats, 0.3 s apart
        assert time.monotonic() - started > 0.8
        assert all(block.data is None and block.comment is not None for block in quiet)
        server.chat("now")
        assert next(subscriber.events()).name == "feature_activation"


def test_the_concatenated_tokens_are_the_answer(server: Server) -> None:
    for content in ("one two", "[chars]né 👩‍👩‍👧 漢字", "  code\n\n    indented "):
        with subscribe(server) as subscriber:
            next(subscriber.blocks())
            answer = server.chat(content).json()["choices"][0]["message"]["content"]
            events = subscriber.until("generation_complete")
        assert "".join(event.data["token"] for event in events[:-1]) == answer
        assert [event.data["token_index"] for event in events[:-1]] == list(range(len(events) - 1))


def test_every_token_has_its_event_before_its_chunk(server: Server, stream: EventStream) -> None:
    seen: list[tuple[float, int]] = []

    def read_events() -> None:
        for event in stream.events():
            if event.name == "generation_complete":
                return
            seen.append((time.monotonic(), event.data["token_index"]))

    reader = threading.Thread(target=read_events)
    reader.start()
    body = {"messages": [{"role": "user", "content": "[delay=0.03] a b c d e f"}], "stream": True}
    chunks: list[tuple[float, list[int]]] = []
    with http.stream("POST", f"{server.chat_url}/v1/chat/completions", json=body, timeout=30) as response:
        for line in response.iter_lines():
            if '"token_indices"' in line:
                indices = line.partition('"token_indices":[')[2].partition("]")[0]
                chunks.append((time.monotonic(), [int(i) for i in indices.split(",")]))
    reader.join(20)
    assert [i for _, indices in chunks for i in indices] == [i for _, i in seen] == list(range(7))
    events = {i: at for at, i in seen}
    late = [at - events[i] for at, indices in chunks for i in indices]
    assert min(late) > -0.02, "an event may be read a moment after its chunk, but not a token later"


@pytest.mark.parametrize(
    ("query", "indices", "filtered"),
    [
        ("?filter=none", [ALWAYS_ON, 4, 20], 0),
        ("?filter=none&top_k=1", [ALWAYS_ON], 0),
        ("?filter=frequency", [4, 20], 1),
        ("?filter=frequency&threshold=1", [ALWAYS_ON, 4, 20], 0),
        ("?filter=combined&top_k=1", [4], 1),
        ("?filter=surprise", [ALWAYS_ON, 4, 20], 0),
        ("?filter=frequency_surprise", [4, 20], 1),
        ("?min_activation=3", [4], 1),
        ("?features=20,21", [20], 0),
        ("?features=9", [], 0),
        ("?filter=none&align=producer", [0], 0),
    ],
)
def test_each_subscriber_has_its_own_view(
    server: Server, query: str, indices: list[int], filtered: int
) -> None:
    first = generation(server, query)[0].data
    assert [feature["index"] for feature in first["top_features"]] == indices
    assert first["filtered_count"] == filtered


def test_surprise_is_null_without_enough_firings(server: Server) -> None:
    (feature,) = generation(server, "?filter=none&align=producer")[0].data["top_features"]
    assert feature == {"index": 0, "label": "label of 0", "activation": 1.0, "surprise": None}


def test_producer_alignment_shows_the_position_before(server: Server) -> None:
    own = generation(server, "?filter=none")
    producer = generation(server, "?filter=none&align=producer")
    assert producer[1].data["top_features"] == own[0].data["top_features"]
    assert producer[1].data["position"] == own[1].data["position"]
    assert producer[1].data["fvu"] is None


def test_ids_do_not_depend_on_the_view(server: Server) -> None:
    with subscribe(server, "?filter=none") as one, subscribe(server, "?top_k=1&features=4") as other:
        next(one.blocks())
        next(other.blocks())
        server.chat("a b")
        assert [e.id for e in one.until("generation_complete")] == [
            e.id for e in other.until("generation_complete")
        ]


def test_a_reconnecting_subscriber_gets_every_event_exactly_once(server: Server) -> None:
    with subscribe(server) as subscriber:
        next(subscriber.blocks())
        server.chat("a b c d")
        first = subscriber.take(2)
        rest = subscriber.until("generation_complete")
    for query, headers in [("", {"Last-Event-ID": first[-1].id}), (f"?since={first[-1].id}", {})]:
        with subscribe(server, query, **headers) as again:  # type: ignore[arg-type]
            assert again.until("generation_complete") == rest


def test_a_subscriber_that_saw_no_event_can_go_on_from_the_opening(server: Server) -> None:
    opening = last_id(server)
    server.chat("a")
    with subscribe(server, **{"Last-Event-ID": opening}) as again:
        assert [e.name for e in again.take(3)] == ["feature_activation"] * 2 + ["generation_complete"]


def test_what_the_ring_no_longer_has_is_announced(server: Server) -> None:
    start = last_id(server)
    epoch, _, sequence = start.partition("-")
    server.chat("w " * 100)  # 102 events, and the ring holds 64
    with subscribe(server, **{"Last-Event-ID": start}) as subscriber:
        gap, *events = subscriber.until("generation_complete")
    assert gap.name == "gap"
    assert gap.data["missed"] == 102 - 64
    assert gap.id == f"{epoch}-{int(sequence) + 38}"
    assert [e.id for e in events] == [f"{epoch}-{int(sequence) + n}" for n in range(39, 103)]


def test_an_id_of_another_run_gives_a_gap_and_then_what_there_is(server: Server) -> None:
    server.chat("a")
    for foreign in ("deadbeef-5", "nonsense", "-", "1-2-3"):
        with subscribe(server, **{"Last-Event-ID": foreign}) as subscriber:
            gap, *events = subscriber.take(4)
        assert gap.name == "gap"
        assert gap.data["missed"] is None
        assert "restarted" in gap.data["reason"]
        assert {e.name for e in events} <= {"feature_activation", "generation_complete"}


def test_one_completion_can_be_followed_alone_even_afterwards(server: Server) -> None:
    answers = [server.chat(text).json()["id"] for text in ("a b", "c d e", "f")]
    with subscribe(server, f"?completion_id={answers[1]}") as subscriber:
        events = subscriber.until("generation_complete")
    assert {e.data["completion_id"] for e in events} == {answers[1]}
    assert "".join(e.data["token"] for e in events[:-1]) == "c d e"


def test_what_others_were_sent_is_no_loss_to_who_follows_one_answer(server: Server) -> None:
    server.chat("w " * 100)  # more than the ring holds
    answer = server.chat("w " * 70).json()["id"]
    other = server.chat("b").json()["id"]
    with subscribe(server, f"?completion_id={other}") as subscriber:
        assert [e.name for e in subscriber.take(3)] == ["feature_activation"] * 2 + ["generation_complete"]
    with subscribe(server, f"?completion_id={answer}") as subscriber:
        gap, *events = subscriber.until("generation_complete")
    assert gap.data["missed"] + len(events) == 72
    assert len(events) == 64 - 3


def test_a_failure_is_an_event_and_the_stream_goes_on(server: Server, stream: EventStream) -> None:
    server.chat("[fail=1] a b")
    *_, error = stream.until("generation_error")
    assert error.data["model"] == "scripted/model"
    assert "RuntimeError" in error.data["message"]
    server.chat("a")
    assert stream.until("generation_complete")


def test_parallel_subscribers_see_the_same(server: Server) -> None:
    subscribers = [subscribe(server) for _ in range(8)]
    for subscriber in subscribers:
        next(subscriber.blocks())
    server.chat("a b c")
    seen = [subscriber.until("generation_complete") for subscriber in subscribers]
    assert all(events == seen[0] for events in seen)
    for subscriber in subscribers:
        subscriber.close()


def test_too_many_subscribers_are_told_to_come_back(server: Server) -> None:
    wait_until(lambda: server.get("/readyz").json()["subscribers"] == 0, what="an empty stream")
    subscribers = [subscribe(server) for _ in range(20)]
    full = server.get("/v1/features/stream")
    assert full.status_code == 503
    assert full.json()["error"]["code"] == "too_many_subscribers"
    assert int(full.headers["retry-after"]) > 0
    subscribers.pop().close()
    wait_until(
        lambda: server.get("/readyz").json()["subscribers"] == 19, what="the place to be free", seconds=5
    )
    subscribers.append(subscribe(server))
    for subscriber in subscribers:
        subscriber.close()


def test_a_head_request_takes_no_place(server: Server) -> None:
    response = http.head(f"{server.features_url}/v1/features/stream")
    assert response.status_code == 200
    wait_until(lambda: server.get("/readyz").json()["subscribers"] == 0, what="an empty stream")


def test_curl_reads_the_stream(server: Server) -> None:
    curl = shutil.which("curl")
    assert curl is not None
    command = [curl, "-sN", "--max-time", "20", f"{server.features_url}/v1/features/stream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline().startswith(":")
        server.chat("bonjour")
        lines: list[str] = []
        while not lines or not lines[-1].startswith("data:"):
            lines.append(reading.stdout.readline())
        reading.kill()
    assert "event: feature_activation\n" in lines
    assert '"token":"bonjour"' in lines[-1]


def test_one_feature(server: Server) -> None:
    feature: dict[str, Any] = server.get("/v1/features/5").json()
    assert feature["feature"] == 5
    assert feature["label"] == "label of 5"
    assert feature["neuronpedia"] == "https://www.neuronpedia.org/scripted-model/7-scripted/5"


def test_search_finds_labels_in_any_case(server: Server) -> None:
    found = server.get("/v1/features/search", params={"q": "LABEL of 1", "limit": 3}).json()
    assert [row["feature"] for row in found["features"]] == [1, 10, 11]


def test_health_and_readiness_on_both_ports(server: Server) -> None:
    for base in (server.chat_url, server.features_url):
        assert http.get(f"{base}/healthz").json() == {"status": "ok"}
        ready = http.get(f"{base}/readyz").json()
        assert ready["status"] == "ready"
        assert ready["degraded"] == []
        assert ready["model"] == "scripted/model"
        assert ready["sae"] == {"id": "scripted/sae", "layer": LAYER, "width": WIDTH}
        assert ready["ranking"]["filter"] == "frequency"
        assert ready["labels"] == {"count": 28, "sources": {"test": 28}}
