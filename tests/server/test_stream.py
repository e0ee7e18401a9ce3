"""The ring, its readers and their views, without a process."""

from __future__ import annotations

import itertools
import json

import pytest
from scripted import Acts, acts_of, stats

from neuroscope.events import GenerationComplete
from neuroscope.ranking import Ranking
from neuroscope.server import wire
from neuroscope.server.fanout import Fanout, Form, Seat
from neuroscope.server.problems import Problem
from neuroscope.server.stream import Entry, FeatureStream, GeneratedToken
from neuroscope.server.subscribers import MAX_VIEWS, Subscribers, follow, read_start
from neuroscope.server.views import EventWriter, View, read_view
from neuroscope.steps import Step

DEFAULT = View(Ranking())


def complete(name: str) -> GenerationComplete:
    return GenerationComplete(name, "model", 1, "stop")


def token(acts: Acts, *, name: str = "c") -> GeneratedToken:
    step = Step(0, 5, b"x", 9, "x", acts, acts_of(3), float("nan"), None, (), None, 9)
    return GeneratedToken(name, 7, step)  # type: ignore[arg-type]


def writer(stream: FeatureStream, *, kept: int = 1024) -> EventWriter:
    return EventWriter([f"label of {i}" for i in range(32)], stats(), stream, kept=kept)


def seat(stream: FeatureStream) -> Seat:
    """Of a reader without a socket."""
    return Fanout(stream, writer(stream).write).seat(lambda: Form(DEFAULT, None, bytes), None)


def names(entries: list[Entry]) -> list[str]:
    return [entry.published.completion_id for entry in entries]


def test_a_reader_gets_events_in_order_from_its_cursor() -> None:
    stream = FeatureStream(4)
    for name in "abc":
        stream.publish(complete(name))
    assert names(stream.read(0, 10).entries) == ["a", "b", "c"]
    assert names(stream.read(1, 1).entries) == ["b"]
    assert stream.read(1, 1).cursor == 2
    assert stream.read(3, 10) == type(stream.read(3, 10))(0, [], 3)


def test_a_reader_is_told_how_many_events_it_missed() -> None:
    stream = FeatureStream(4)
    for number in range(10):
        stream.publish(complete(str(number)))
    reading = stream.read(2, 10)
    assert reading.missed == 4
    assert names(reading.entries) == ["6", "7", "8", "9"]
    assert (stream.oldest, stream.newest) == (7, 10)


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_reading_agrees_with_a_list_at_every_cursor(capacity: int) -> None:
    stream, everything = FeatureStream(capacity), []
    for number in range(8):
        stream.publish(complete(str(number)))
        everything.append(str(number))
        for cursor, limit in itertools.product(range(number + 2), (1, 3, 10)):
            kept = everything[-capacity:]
            first = len(everything) - len(kept)
            reading = stream.read(cursor, limit)
            assert reading.missed == max(0, first - cursor)
            assert names(reading.entries) == everything[max(first, cursor) :][:limit]
            assert reading.cursor == max(first, cursor) + len(reading.entries)


def test_identifiers_are_read_back() -> None:
    stream = FeatureStream(4, epoch="ab12")
    stream.publish(complete("a"))
    assert stream.identifier(1) == "ab12-1"
    assert stream.cursor_after("ab12-1") == 1
    assert stream.cursor_after("0") == 0
    assert stream.cursor_after("ab12-99") == 1, "not from the future"
    for foreign in ("ffff-1", "ab12-", "-1", "x", "", "ab12-1\n", "ab12-٣"):
        assert stream.cursor_after(foreign) is None


def test_waiting_ends_with_an_event_or_the_close() -> None:
    stream = FeatureStream(4)
    assert not stream.wait(0, 0.01)
    stream.publish(complete("a"))
    assert stream.wait(0, 0)
    assert not stream.wait(1, 0.01)
    stream.close()
    assert stream.wait(1, 0)


def test_a_subscriber_begins_where_it_asks_to() -> None:
    stream = FeatureStream(4, epoch="ab")
    for name in "abc":
        stream.publish(complete(name))
    assert read_start(stream, None, None).cursor == 3
    assert read_start(stream, None, "b").cursor == 1
    assert read_start(stream, None, "not begun").cursor == 3
    assert read_start(stream, "ab-2", None).cursor == 2
    assert read_start(stream, "cd-2", None).is_other_run


def test_a_closed_stream_is_read_to_its_end_and_ends_with_a_shutdown() -> None:
    stream = FeatureStream(4, epoch="ab")
    stream.publish(complete("a"))
    stream.close()
    blocks = follow(
        stream,
        writer(stream).write,
        DEFAULT,
        read_start(stream, "0", None),
        seat(stream),
        only=lambda: None,
        heartbeat_s=1,
        is_gone=lambda: False,
    )
    text = b"".join(blocks).decode()
    assert text.startswith(":")
    assert [line for line in text.splitlines() if line.startswith("event")] == [
        "event: generation_complete",
        "event: shutdown",
    ]
    assert text.endswith("\n\n")
    assert "id: ab-1\n" in text


def published(*names: str, capacity: int) -> FeatureStream:
    """A closed stream of one event a name."""
    stream = FeatureStream(capacity, epoch="ab")
    for name in names:
        stream.publish(complete(name))
    stream.close()
    return stream


def followed(stream: FeatureStream, only: str | None, last_id: str | None = None) -> list[str]:
    """Names of the events that a reader of `only` gets, and of a gap how many are missed, up to which id."""
    blocks = follow(
        stream,
        writer(stream).write,
        DEFAULT,
        read_start(stream, last_id, only),
        seat(stream),
        only=lambda: only,
        heartbeat_s=1,
        is_gone=lambda: False,
    )
    messages = [json.loads(m) for block in blocks for m in wire.messages(block)]
    return [
        f"{m['data']['missed']} to {m['id']}" if m["event"] == "gap" else m["data"]["completion_id"]
        for m in messages
        if m["event"] != "shutdown"
    ]


def test_who_follows_one_answer_is_told_of_that_answers_losses_only() -> None:
    stream = published(*"aabbbcc", capacity=4)
    assert followed(stream, "c") == ["c", "c"]
    assert followed(stream, "b") == ["1 to ab-3", "b", "b"]
    assert followed(stream, "a") == ["2 to ab-3"]
    assert followed(stream, "never asked for") == []
    assert followed(stream, None, "ab-0") == ["3 to ab-3", "b", "b", "c", "c"]
    assert followed(stream, "b", "ab-1") == ["1 to ab-3", "b", "b"]
    assert followed(stream, "b", "ab-3") == ["b", "b"]
    assert followed(stream, "c", "ab-1") == ["c", "c"]
    assert stream.missed == 1 + 2 + 3 + 1, "what they were told, together"


def test_only_as_many_answers_as_events_are_remembered() -> None:
    stream = published(*"abcdef", capacity=4)
    assert followed(stream, "c") == ["c"]
    assert followed(stream, "a") == []
    assert stream.before("b") == stream.newest


def test_places_and_views_are_limited_and_given_back() -> None:
    subscribers = Subscribers(MAX_VIEWS + 2)
    leaves = [subscribers.admit(View(Ranking(top_k=k))) for k in range(1, MAX_VIEWS + 1)]
    with pytest.raises(Problem, match="64 different settings") as refused:
        subscribers.admit(View(Ranking(top_k=1000)))
    assert refused.value.status == 503
    leaves.append(subscribers.admit(View(Ranking(top_k=1))))
    leaves.append(subscribers.admit(View(Ranking(top_k=1))))
    with pytest.raises(Problem, match="66 subscribers already"):
        subscribers.admit(View(Ranking(top_k=1)))
    leaves[3]()
    leaves[3]()  # of no effect
    assert len(subscribers) == MAX_VIEWS + 1
    subscribers.admit(View(Ranking(top_k=1000)))


def test_equal_views_are_rendered_once() -> None:
    stream = FeatureStream(4)
    stream.publish(token(acts_of(0)))
    (entry,) = stream.read(0, 1).entries
    events = writer(stream)
    assert events.write(entry, DEFAULT) is events.write(entry, View(Ranking()))
    assert events.write(entry, DEFAULT) != events.write(entry, View(Ranking(filter="none")))


def test_a_small_memory_of_rendered_events_changes_nothing() -> None:
    stream = FeatureStream(8)
    for index in range(6):
        stream.publish(token(acts_of(index)))
    entries = stream.read(0, 10).entries
    small, large = writer(stream, kept=1), writer(stream)
    assert [small.write(e, DEFAULT) for e in entries * 2] == [large.write(e, DEFAULT) for e in entries * 2]


def test_numbers_that_json_has_not_become_null() -> None:
    stream = FeatureStream(4)
    stream.publish(token(acts_of(0)))
    block = writer(stream).write(stream.read(0, 1).entries[0], DEFAULT)
    assert b'"fvu":null' in block
    assert b"NaN" not in block


def test_a_view_takes_the_defaults_where_the_query_is_silent() -> None:
    defaults = Ranking("surprise", 0.25, 7)
    assert read_view({}, defaults, None) == View(defaults)
    query = {
        "filter": "none",
        "top_k": "3",
        "threshold": "0.5",
        "min_activation": "1.5",
        "features": "2, 5,2",
    }
    assert read_view({**query, "align": "producer"}, defaults, None) == View(
        Ranking("none", 0.5, 3, 1.5, frozenset({2, 5})), "producer"
    )
