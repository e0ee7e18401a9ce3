"""gunicorn's worker with nothing in it, on one port: what it refuses as fast as it can, 429 to everything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from serving import ROOT, free_ports, opens, wait_until

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

BODY = b'{"error": {"message": "full", "type": "rate_limit_error", "param": null, "code": "queue_full"}}'


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(BODY))), ("Retry-After", "5")]
    start_response("429 Too Many Requests", headers)
    return [BODY]


@contextmanager
def bare_server() -> Iterator[int]:
    """Its port."""
    (port,) = free_ports(1)
    options = ["-k", "gevent", "-b", f"127.0.0.1:{port}", "--keep-alive", "75", "--log-level", "error"]
    command = [sys.executable, "-m", "gunicorn", *options, f"{__name__}:app"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests/server")))}
    process = subprocess.Popen(
        command, cwd=ROOT / "bench", env=env
    )  # not where the product's gunicorn.conf.py lies
    try:
        wait_until(lambda: opens(port), what="gunicorn alone")
        yield port
    finally:
        process.terminate()
        process.wait(10)
