"""Lines to a pipe whose reader is stuck, slow or gone: never a wait, never an error, and what is lost is counted."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscope.server import outlet as outlets
from neuroscope.server.outlet import LIMIT, LONGEST, Outlet


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):  # closed by the test
            os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    found = b""
    try:
        while piece := os.read(descriptor, 1 << 20):
            found += piece
    except BlockingIOError:
        pass
    return found


def test_lines_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    outlet = Outlet(pipe[1])
    for number in range(100):
        outlet.write(f"line {number} é\n")
    assert read_all(pipe[0]).decode().splitlines() == [f"line {number} é" for number in range(100)]


@pytest.mark.parametrize("private", [True, False], ids=["own", "shared"])
def test_a_stuck_reader_is_not_waited_for_and_reads_on_later(
    pipe: tuple[int, int], private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not private:  # where a pipe cannot be opened once more
        monkeypatch.setattr(outlets, "_opened", lambda descriptor: (descriptor, outlets.PIECE))
    outlet = Outlet(pipe[1])
    assert os.get_blocking(pipe[1]), "it is other processes' too"
    line = "x" * 999 + "\n"
    count = 65_536 // len(line) + LIMIT + 50
    for _ in range(count):
        outlet.write(line)
    assert outlet.dropped > 0
    found = b""
    while piece := read_all(pipe[0]):
        found += piece
        outlet.flush()
    lines = found.decode().splitlines()
    assert set(lines) == {line.rstrip()}
    assert len(lines) == count - outlet.dropped
    assert outlet.take_untold() == outlet.dropped
    assert outlet.take_untold() == 0


def test_a_reader_that_has_gone_is_no_error(pipe: tuple[int, int]) -> None:
    outlet = Outlet(pipe[1])
    os.close(pipe[0])
    for _ in range(3):
        outlet.write("nobody reads this\n")
    outlet.finish(5)
    assert outlet.dropped == 3


def test_a_full_disk_is_no_error() -> None:
    with Path("/dev/full").open("wb") as full:
        outlet = Outlet(full.fileno())
        outlet.write("there is no room for this\n")
        assert outlet.dropped == 1


def test_a_stream_that_was_closed_at_the_start_swallows_everything() -> None:
    outlet = Outlet(None)
    outlet.write("to nowhere\n")
    outlet.finish(5)
    assert outlet.dropped == 0


def test_a_line_without_end_is_cut(pipe: tuple[int, int]) -> None:
    outlet = Outlet(pipe[1])
    outlet.write("x" * (2 * LONGEST) + "\n")
    assert read_all(pipe[0]) == b"x" * (LONGEST - 4) + b"...\n"


def test_threads_write_at_once(pipe: tuple[int, int]) -> None:
    outlet = Outlet(pipe[1])

    def write(name: int) -> None:
        for number in range(200):
            outlet.write(f"{name} {number}\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outlet.flush()
    lines = read_all(pipe[0]).decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in range(4) for number in range(200))


def test_a_forked_process_does_not_write_its_parents_lines_again(pipe: tuple[int, int]) -> None:
    outlet = Outlet(pipe[1])
    line = "x" * 999 + "\n"
    for _ in range(100):  # more than the pipe holds
        outlet.write(line)
    child = os.fork()
    if child == 0:
        outlet.flush()
        outlet.write("of the child\n")
        os._exit(0)
    os.waitpid(child, 0)
    found = b""
    while piece := read_all(pipe[0]):
        found += piece
        outlet.flush()
    assert found.count(b"x" * 999) == 100
