"""`neuroscope watch` as a process beside the real server: everybody's answers, and what was missed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest
from at_terminal import run, start
from serving import Server, serving

RING = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), serve={"heartbeat_s": 0.2, "ring": RING}) as running:
        yield running


def watching(server: Server, *words: str) -> subprocess.Popen[str]:
    """A watcher that is connected."""
    process = start(server, "watch", *words)
    assert process.stderr is not None
    assert process.stderr.readline() == "-- connected, waiting for tokens\n"
    return process


def ended(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    return out.splitlines(), errors


def test_answers_of_any_client_are_shown_each_under_its_id(server: Server) -> None:
    process = watching(server, "--filter", "none", "--top-k", "1")
    assert process.stdout is not None
    first = server.chat("one two").json()["id"]
    second = server.chat("three", max_tokens=1).json()["id"]
    lines = [process.stdout.readline().rstrip() for _ in range(12)]
    ended(process)
    assert lines[0] == f"== {first}"
    assert [line.split()[:2] for line in lines[2:5]] == [["one", "3"], ["␣two", "3"], ["·", "3"]]
    assert lines[5] == "stop: 2 tokens, L0 3.0, FVU 0.125"
    assert lines[7] == f"== {second}"
    assert lines[10] == "length: 1 tokens, L0 3.0, FVU 0.125"


def test_one_answer_is_watched_from_its_beginning_to_its_end(server: Server) -> None:
    completion_id = server.chat("a b").json()["id"]
    server.chat("another")
    done = run(server, "watch", "--completion-id", completion_id, "--json")
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["event"] for row in rows] == ["open", *["feature_activation"] * 3, "generation_complete"]
    assert {row["data"].get("completion_id") for row in rows[1:]} == {completion_id}
    assert all(re.fullmatch("[0-9a-f]{8}-[0-9]+", row["id"]) for row in rows)
    for_people = run(server, "watch", "--completion-id", completion_id)
    assert for_people.stderr.startswith(f"-- connected, waiting for {completion_id}\n")


def test_what_the_server_forgot_is_said(server: Server) -> None:
    server.chat("word " * (2 * RING))
    server.chat("the last")
    done = run(server, "watch", "--since", "1", "--once")
    assert done.returncode == 0
    missed = re.search(
        r"-- ([\d,]+) events are missing here: These events are older than the server keeps", done.stderr
    )
    assert missed is not None
    assert int(missed[1]) > RING
    done = run(server, "watch", "--since", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'since' is 'nonsense'; it must be an event's id, or 0." in done.stderr


def test_a_failed_answer_is_shown_as_one(server: Server) -> None:
    process = watching(server, "--once")
    server.chat("[fail=1]a b")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.splitlines()[-2].startswith("failed: The model failed on this request")


def test_a_prompt_that_somebody_asked_for_is_shown(server: Server) -> None:
    process = watching(server, "--once")
    server.chat("ask me", neuroscope={"prompt_features": True}, max_tokens=1)
    out, _ = process.communicate(timeout=30)
    assert [line.split()[0] for line in out.splitlines()[2:7]] == ["--", "ask", "␣me", "--", "ask"]
