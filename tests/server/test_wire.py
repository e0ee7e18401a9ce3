"""Strict JSON in and out, and server-sent events as bytes."""

from __future__ import annotations

import json

import pytest

from neuroscope.server import wire


def test_json_is_one_line_whatever_is_in_it() -> None:
    text = "a\nb\r\u2028c\u2029d\x85e\0f 漢字"
    line = wire.dumps({"text": text})
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"text": text}
    assert "漢字" in line


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_has_not_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        wire.dumps({"x": value})
    assert wire.finite(value) is None
    assert wire.finite(1.5) == 1.5


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert wire.encode("a\ud800") == b'"a?"'


def test_thirty_two_levels_are_read_and_no_more() -> None:
    assert wire.loads(b"[" * 32 + b"1" + b"]" * 32)
    for levels in (33, 500, 100_000):
        with pytest.raises(ValueError, match="more than 32 levels"):
            wire.loads(b"[" * levels + b"1" + b"]" * levels)


def test_events_are_blocks_with_a_name_an_id_and_one_line_of_data() -> None:
    assert wire.event("gap", {"missed": 2}, "ab-3") == b'event: gap\nid: ab-3\ndata: {"missed":2}\n\n'
    assert wire.data({"a": "\n"}) == b'data: {"a":"\\n"}\n\n'
