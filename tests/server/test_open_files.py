"""Streams are kept within what the kernel lets one process open."""

from __future__ import annotations

import resource

import pytest

from neuroscope.server import open_files


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "streams"),
    [
        (1024, 4096, 4096, 1100),
        (1024, 1024, None, 824),
        (1024, resource.RLIM_INFINITY, 65_536, 1100),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 1100),
        (100, 100, None, 1),
    ],
)
def test_the_limit_is_raised_and_streams_kept_within_it(
    soft: int, hard: int, raised: int | None, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    assert open_files.room_for_streams(1100) == streams
    assert limits == ([] if raised is None else [(raised, hard)])


def test_fewer_streams_than_configured_are_said_with_what_helps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    open_files.room_for_streams(1100)
    assert "at most 824 streams are served instead of the 1100" in caplog.text
    assert "to 1300" in caplog.text
    caplog.clear()
    open_files.room_for_streams(824)
    assert caplog.text == ""
