"""Server-sent events out of bytes: the standard's rules, however the bytes are cut."""

from __future__ import annotations

import pytest

from neuroscope.client import sse
from neuroscope.client.sse import Message, Parser


def parse(stream: bytes, size: int | None = None) -> list[tuple[str, str, str]]:
    """The events of a stream that comes in pieces of `size` bytes."""
    parser, size = Parser(), size or len(stream)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    return [tuple(message) for piece in pieces for message in parser.feed(piece)]  # type: ignore[misc]


EXAMPLES = {
    "one": (b"data: a\n\n", [("message", "", "a")]),
    "name and id": (b"event: x\nid: 7\ndata: a\n\n", [("x", "7", "a")]),
    "many lines of data": (b"data: a\ndata:b\ndata:  c\n\n", [("message", "", "a\nb\n c")]),
    "comments": (b": hi\n\n:\ndata: a\n: there\n\n", [("message", "", "a")]),
    "an id stays": (b"id: 7\ndata: a\n\ndata: b\n\n", [("message", "7", "a"), ("message", "7", "b")]),
    "an id with NUL is none": (b"id: 7\n\nid: 8\0\ndata: a\n\n", [("message", "7", "a")]),
    "an empty id resets": (b"id: 7\n\nid\ndata: a\n\n", [("message", "", "a")]),
    "a name without data is forgotten": (b"event: x\n\ndata: a\n\n", [("message", "", "a")]),
    "a name is for one event": (b"event: x\ndata: a\n\ndata: b\n\n", [("x", "", "a"), ("message", "", "b")]),
    "a field without a colon": (b"data\ndata\n\ndata\n\n", [("message", "", "\n"), ("message", "", "")]),
    "unknown fields": (b"colour: red\n data: no\ndata: a\n\n", [("message", "", "a")]),
    "no end, no event": (b"data: a\n\ndata: b\n", [("message", "", "a")]),
    "a mark at the beginning": (b"\xef\xbb\xbfdata: a\n\n", [("message", "", "a")]),
    "one such mark only": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [("message", "", "a")]),
    "not UTF-8": (b"data: \xff\xe2\x82\xac\n\n", [("message", "", "\ufffd€")]),
    "other line ends are text": (
        "data: a\x85b\u2028c\x0bd\n\n".encode(),
        [("message", "", "a\x85b\u2028c\x0bd")],
    ),
    "empty lines": (b"\n\n\ndata: a\n\n\n\n", [("message", "", "a")]),
}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_standards_rules_hold_however_the_bytes_are_cut(name: str, ending: bytes, size: int) -> None:
    stream, expected = EXAMPLES[name]
    assert parse(stream.replace(b"\n", ending), size) == expected


def test_line_ends_may_be_mixed() -> None:
    assert parse(b"data: a\rdata: b\r\ndata: c\n\r\n") == [("message", "", "a\nb\nc")]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_there_with_its_empty_line_and_not_later(ending: bytes) -> None:
    parser = Parser()
    assert list(parser.feed(b"data: a" + ending)) == []
    assert list(parser.feed(ending[:1])) == [Message("message", "", "a")]


def test_a_wait_is_kept_when_it_is_a_number() -> None:
    parser = Parser()
    list(parser.feed("retry: 2000\nretry: soon\nretry: -1\nretry: ٣\n\n".encode()))
    assert parser.retry_ms == 2000


def test_the_place_in_the_stream_is_known_without_an_event() -> None:
    parser = Parser()
    assert list(parser.feed(b": hello\nretry: 5\nid: ab-3\n")) == []
    assert parser.last_id == ""
    assert list(parser.feed(b"\n")) == []
    assert parser.last_id == "ab-3"


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 200, b"data: x\n" * 40], ids=["one line", "many"])
def test_an_endless_event_is_refused(stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(ValueError, match="longer than 100 bytes"):
        parse(stream, 7)
