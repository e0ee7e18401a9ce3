"""The ledger of calls: what a killed process leaves, who may write, what is read back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.claude import FakeClaude

from autointerp.asking import MODEL, answer, asks, run, states
from neuroscope.autointerp.calls.ask import Usage
from neuroscope.autointerp.calls.ledger import Batch, Call, Ledger
from neuroscope.errors import ArtefactError, LabelError

TESTS = Path(__file__).parents[1]


def call(feature: int, state: str = "labelled", **more: object) -> Call:
    return Call(feature, "label", f"hash-{feature}", MODEL, 1, state, text="{}", usd=0.5, **more)  # type: ignore[arg-type]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new folder/ledger.jsonl"
    first = call(1, usage=Usage(1, 2, 3, 4), reason="é\ud800", at="2026-01-01T00:00:00+00:00")
    with Ledger(path) as ledger:
        ledger.write(first)
        assert ledger.settled(first.key, MODEL) == first
    assert Ledger(path).of(first.key, MODEL) == [first]
    assert Ledger(path).of(first.key, "another model") == []


def test_a_torn_last_line_is_forgotten_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.write(call(1))
        ledger.write(call(2))
    path.write_bytes(path.read_bytes()[:-20])
    assert Ledger(path).of(call(2).key, MODEL) == []
    with Ledger(path) as ledger:
        ledger.write(call(3))
    assert [bool(Ledger(path).of(call(n).key, MODEL)) for n in (1, 2, 3)] == [True, False, True]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.write(call(1))
        ledger.write(call(2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"{}\n".join(lines))
    with pytest.raises(ArtefactError, match=r"ledger.jsonl, line 2, is not a row .* Delete that line"):
        Ledger(path)


def test_two_processes_do_not_write_one_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path), pytest.raises(LabelError, match="Another process is writing"), Ledger(path):
        pass
    with Ledger(path):
        pass


def test_what_is_spent_counts_from_the_last_end_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.write(call(1))
        ledger.write(call(2))
        assert ledger.spent("label", MODEL) == 1.0
        ledger.done("label", MODEL)
        ledger.write(call(3))
    assert Ledger(path).spent("label", MODEL) == 0.5
    assert Ledger(path).spent("detection", MODEL) == 0.0


def test_a_batch_is_open_until_its_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    batch = Batch("t", MODEL, (call(1).key, call(2).key), 0.1, 1.0)
    with Ledger(path) as ledger:
        ledger.begin_batch(batch)
    assert Ledger(path).open_batches("label", MODEL) == [batch]
    assert Ledger(path).open_batches("detection", MODEL) == []
    named = Batch("t", MODEL, batch.keys, 0.1, 1.0, id="msgbatch_1")
    with Ledger(path) as ledger:
        ledger.begin_batch(named)
    assert Ledger(path).open_batches("label", MODEL) == [named]
    with Ledger(path) as ledger:
        ledger.end_batch(named)
    assert Ledger(path).open_batches("label", MODEL) == []


KILLED = """
import sys
from pathlib import Path
from autointerp.asking import run
run(Path(sys.argv[1]), 400, concurrency=4, batch=sys.argv[2] == "batch")
"""


def start(path: Path, how: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    return subprocess.Popen([sys.executable, "-c", KILLED, str(path), how], env=environment)


def kill_when(process: subprocess.Popen[bytes], ready: object) -> None:
    deadline = time.monotonic() + 60
    while not ready():  # type: ignore[operator]
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_run_goes_on_and_pays_again_only_for_what_was_in_flight(
    claude: FakeClaude, tmp_path: Path
) -> None:
    claude.answer, claude.latency = answer, 0.005
    path = tmp_path / "ledger.jsonl"
    for goal in (50, 150):
        kill_when(start(path, "one by one"), lambda goal=goal: len(claude.paid) >= goal)
    claude.latency = 0
    kept = 400 - states(path, 400).count(None)
    assert kept >= 150 - 2 * 4
    tally = run(path, 400)
    assert tally.states == {"labelled": 400}
    assert tally.calls == 400 - kept
    assert len(claude.paid) == 400
    assert sum(claude.paid.values()) <= 400 + 2 * 4, "two kills, four calls in flight at each"


@pytest.mark.parametrize("batch_again", [True, False], ids=["batch again", "one by one"])
def test_a_killed_run_takes_up_its_batch_and_pays_for_nothing_twice(
    claude: FakeClaude, tmp_path: Path, batch_again: bool
) -> None:
    claude.answer, claude.polls = answer, 10**9
    path = tmp_path / "ledger.jsonl"
    kill_when(start(path, "batch"), lambda: path.exists() and b"msgbatch_0" in path.read_bytes())
    (batch,) = claude.batches.values()
    batch["polls"] = claude.polls = 1
    assert run(path, 400, batch=batch_again).states == {"labelled": 400}
    assert (len(claude.batches), claude.paid_twice) == (1, {})


def test_a_run_killed_before_it_knew_its_batch_finds_it(claude: FakeClaude, tmp_path: Path) -> None:
    claude.answer, claude.polls = answer, 10**9
    path = tmp_path / "ledger.jsonl"
    kill_when(start(path, "batch"), lambda: path.exists() and b"msgbatch_0" in path.read_bytes())
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b"msgbatch_0" not in line))
    assert json.loads(lines[0])["id"] is None
    (batch,) = claude.batches.values()
    batch["polls"] = claude.polls = 1
    assert run(path, 400, batch=True).states == {"labelled": 400}
    assert (len(claude.batches), claude.paid_twice) == (1, {})


def test_asks_know_their_keys() -> None:
    one, other = asks(2)
    assert one.key != other.key


GOOD = {
    "row": "call",
    **{
        "feature": 1,
        "purpose": "label",
        "content_hash": "h",
        "model": MODEL,
        "attempt": 1,
        "state": "labelled",
    },
    **{"text": "{}", "usage": {"input": 1, "output": 1}, "usd": 0.5},
}
BATCH = {"row": "batch", "token": "t", "model": MODEL, "reserved_usd": 1.0, "at": 1.0, "id": "msgbatch_1"}


@pytest.mark.parametrize(
    "row",
    [
        None,
        3,
        "call",
        [],
        {**GOOD, "usd": float("nan")},
        {**GOOD, "usd": -100},
        {**GOOD, "feature": "1"},
        {**GOOD, "text": 5},
        {**GOOD, "usage": {"input": "1"}},
        {**BATCH, "keys": []},
        {**BATCH, "keys": [[1, "label", "h"]], "reserved_usd": float("nan")},
    ],
    ids=str,
)
def test_a_row_that_no_run_writes_is_named_as_damaged(tmp_path: Path, row: object) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(row)}\n")
    with pytest.raises(ArtefactError, match=r"ledger.jsonl, line 2, .* Delete that line"):
        Ledger(path)
