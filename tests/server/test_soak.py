"""The soak, in miniature: what it asserts must hold here too, but for its speeds, which depend on the machine.

And that it can fail: what is lost, late or left behind is seen and named. README's table is the last report's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from serving import ROOT, wait_until

from bench.soak import __main__ as soak
from bench.soak import chats, quoting, report
from bench.soak.readers import Reader
from bench.soak.server import Answer

SPEEDS = {"p99_ms", "speed_kept", "refusal_ratio", "seconds"}
MINIATURE = (
    "--only settings,slow,chats,mix,ends --seconds 2 --clients 60 --stuck 5 --chats 40 --requests 200 "
    "--ends 2 --streams 30 --json"
)
HEAD = b"HTTP/1.1 200 OK\r\n\r\n40\r\n: one event a token\nretry: 2000\nid: ab-6\n\n\r\n"


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.soak", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = start(*MINIATURE.split())
    out, errors = run.communicate(timeout=300)
    assert out, errors
    found: dict[str, Any] = json.loads(out)
    broken = [f["what"] for part in found["parts"] for f in part["figures"] if f["kept"] is False]
    assert run.returncode == (1 if broken else 0)
    assert all(what in errors for what in broken)
    return found


@pytest.mark.parametrize("name", ["settings", "slow", "chats", "mix", "ends"])
def test_every_promise_but_the_speeds_is_kept_in_miniature(miniature: dict[str, Any], name: str) -> None:
    (part,) = [part for part in miniature["parts"] if part["name"] == name]
    for figure in part["figures"]:
        if figure["name"] in SPEEDS:
            assert figure["measured"] > 0
        else:
            assert figure["kept"] is not False, figure
    assert any(figure["promised"] for figure in part["figures"])


def test_a_report_has_no_name_and_no_path_of_the_machine(miniature: dict[str, Any]) -> None:
    text = json.dumps(miniature)
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    assert "/" not in json.dumps(miniature["machine"])


def test_it_leaves_no_process_when_it_is_stopped() -> None:
    run = start("--only", "sse", "--clients", "20", "--stuck", "2", "--seconds", "60")
    me = psutil.Process(run.pid)

    def children() -> list[psutil.Process]:
        found = me.children(recursive=True)  # the server's two, and both crowds
        return found if len(found) == 4 else []

    left = wait_until(children, what="the server and its subscribers")
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert "Broken: sse: stopped by a signal" in errors
    assert run.returncode == 1
    assert psutil.wait_procs(left, timeout=60)[1] == []


@pytest.fixture
def reader() -> Iterator[Reader]:
    with socket.socket() as unused:
        yield Reader(unused)


def event(sequence: int, clock: float = 0.0) -> bytes:
    return (
        f'40\r\nevent: feature_activation\nid: ab-{sequence}\ndata: {{"l0":3,"fvu":{clock}}}\n\n\r\n'.encode()
    )


def test_a_subscriber_counts_its_events_and_times_them_however_they_are_cut(reader: Reader) -> None:
    delays = array("d")
    sent = HEAD + event(7, 1.0) + event(8, 2.5)
    for place in range(0, len(sent), 7):
        reader.take(sent[place : place + 7], 3.0, delays)
    assert (reader.status, reader.newest, reader.gaps) == (200, 8, 0)
    assert reader.counts == {b"feature_activation": 2}
    assert list(delays) == [2.0, 0.5]


def test_a_subscriber_sees_what_was_left_out_and_what_came_twice(reader: Reader) -> None:
    reader.take(HEAD + event(7) + event(9) + event(10) + event(10), 0.0, array("d"))
    assert reader.gaps == 2


def test_another_clients_answer_is_wrong() -> None:
    def answer(content: str) -> Answer:
        body = {"choices": [{"message": {"content": content}}]}
        return Answer(200, {}, json.dumps(body).encode(), 0, 0)

    assert chats.is_right(answer("answer7 answer7"), 7, 2)
    assert not chats.is_right(answer("answer8 answer8"), 7, 2)
    assert not chats.is_right(answer("answer7"), 7, 2)


def test_a_broken_promise_is_named_and_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    figures = (
        report.at_most("late", "99% within", 500, 500.1, "ms"),
        report.at_most("none", "nothing was measured", 500, None, "ms"),
        report.at_least("speed", "of the speed", 0.95, 0.95, ""),
        report.exactly("lost", "events", 10, 9, ""),
        report.reported("rate", "requests", 1.0, "1/s"),
    )
    parts = [
        report.Part("sse", "Subscribers", figures, 1.0),
        report.Part("ends", "SIGTERMs", (), 1.0, "stopped by a signal"),
        report.Part("real", "The model", (), 0, "it is not on this machine"),
    ]
    broken = report.broken(parts)
    assert broken == [
        "sse: 99% within",
        "sse: nothing was measured",
        "sse: events",
        "ends: stopped by a signal",
    ]
    assert soak.say_end(broken, 0) == 1
    assert "Broken: sse: events" in capsys.readouterr().err
    assert soak.say_end([], 1) == 1
    assert soak.say_end([], 0) == 0


def test_too_few_open_files_are_said_with_the_command_that_helps() -> None:
    limited = 'ulimit -n 300; exec "$0" -m bench.soak --only sse --clients 500'
    done = subprocess.run(
        ["bash", "-c", limited, sys.executable], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ulimit -Hn 700" in done.stderr


def test_the_page_quotes_the_last_report_of_the_whole_soak() -> None:
    found = json.loads((ROOT / "bench/soak.json").read_text(encoding="utf-8"))
    assert {part["name"] for part in found["parts"]} == set(soak.TITLES)
    assert found["options"]["clients"] == 1000
    assert found["kept"] is True
    assert found["seconds"] < soak.LONGEST_S
    assert quoting.table(found) in (ROOT / "docs/server.md").read_text(encoding="utf-8")


def test_quoting_replaces_the_table_and_nothing_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{quoting.HEAD}| old | 1 | 2 |\n\n| another | table |\n")
    figure = report.at_most("p99_ms", "99% within", 500, 1234.5, "ms")
    found = report.whole([report.Part("sse", "Subscribers", (figure,), 1.0)], {}, {})
    quoting.quote(found, readme)
    row = "| **Subscribers.** 99% within | at most 500 ms | 1,234.5 ms (broken) |\n"
    assert readme.read_text() == f"before\n\n{quoting.HEAD}{row}\n| another | table |\n"
    assert found["kept"] is False
