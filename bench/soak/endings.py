"""SIGTERM under load, again and again: everyone gets a last event, and nothing stays behind."""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import dataclass

import psutil
from serving import wait_until

from bench.soak.report import Figure, at_most, exactly, reported
from bench.soak.server import CHAT, PATIENCE_S, Crowd, question, request_bytes, soaked

LONGEST_S = 3


@dataclass(frozen=True)
class End:
    """One of them."""

    status: int
    seconds: float
    without_last_event: int
    answers_cut: int
    left_behind: int


def one(streams: int) -> End:
    """A server with that many streams, an answer being streamed and one that waits, told to end."""
    with soaked() as server, Crowd(server, streams) as crowd:
        talking = ask(server.port, question("[delay=0.05] " + "w " * 200, stream=True))
        said = b""
        while said.count(b'"content":') < 3:
            said += talking.recv(65536)
        waiting = ask(server.port, question("never said"))
        wait_until(lambda: server.get("/readyz").json()["queue"]["waiting"] == 1, what="the waiting request")
        workers = psutil.Process(server.process.pid).children(recursive=True)
        started = time.monotonic()
        status = server.stop(signal.SIGTERM, seconds=PATIENCE_S)
        took = time.monotonic() - started
        seen = crowd.result()
        ends = (
            rest(talking).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"),
            rest(waiting).startswith(b"HTTP/1.1 503"),
        )
        return End(
            status,
            took,
            streams - seen["ended_with_shutdown"],
            sum(not is_right for is_right in ends),
            sum(worker.is_running() for worker in workers),
        )


def ask(port: int, body: object) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(request_bytes("POST", CHAT, body))
    return connection


def rest(connection: socket.socket) -> bytes:
    """What comes until the end; a connection that is reset ends there."""
    raw = b""
    with connection:
        try:
            while piece := connection.recv(65536):
                raw += piece
        except ConnectionResetError:
            return raw
    return raw


def run(*, times: int, streams: int) -> list[Figure]:
    ends = [one(streams) for _ in range(times)]
    slowest = max(end.seconds for end in ends)
    return [
        exactly(
            "status",
            f"of {times} ends with {streams} streams and an answer, with a status other than 0",
            0,
            sum(end.status != 0 for end in ends),
            "",
        ),
        exactly("last_event", "streams without a last event", 0, sum(e.without_last_event for e in ends), ""),
        exactly("answers", "answers cut without a word", 0, sum(e.answers_cut for e in ends), ""),
        exactly("left", "processes left", 0, sum(e.left_behind for e in ends), ""),
        at_most("seconds", "slowest end", LONGEST_S, round(slowest, 2), "s"),
        reported("median_s", "median end", round(sorted(e.seconds for e in ends)[times // 2], 2), "s"),
    ]
