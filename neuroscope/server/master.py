"""gunicorn's master: the ports are free or it says why not, no signal makes it start a second model, and no
pause (Ctrl-Z, then `fg`) makes it kill the one it has."""

from __future__ import annotations

import errno
import os
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from neuroscope.errors import ConfigError, NeuroscopeError
from neuroscope.server import logs

if TYPE_CHECKING:
    from gunicorn.arbiter import Arbiter

PATIENCE_S = 2.0
"""A server that was killed this moment holds its ports until its worker has noticed."""
PAUSE_S = 5.0
"""The master looks at its worker every second: so long between two looks, it was stopped itself."""
_SETTINGS = ("serve.port", "serve.features_port")
_UNWANTED = {
    "ttin": "one more worker would load the model once more",
    "ttou": "there is one worker, which holds the model",
    "usr2": "a second server could not have this one's memory; stop it, then start the new one",
}


def try_bind(host: str, port: int) -> None:
    """Bind and listen as gunicorn will, for a moment. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind((host, port))
        trial.listen(1)


def check_addresses(arbiter: Arbiter) -> None:
    """End the process with a sentence when a port cannot be had."""
    if os.environ.get("LISTEN_FDS"):
        return  # opened by systemd
    deadline = time.monotonic() + PATIENCE_S
    for number, address in enumerate(arbiter.cfg.address):
        if not isinstance(address, tuple):
            continue  # a Unix socket: the worker refuses it
        try:
            _wait_for(address[0], address[1], deadline)
        except OSError as error:
            failure = _failure(address, _SETTINGS[min(number, 1)], error)
            logs.announce(f"\nNot started: {failure}\n", level=logs.ERROR)
            logs.finish()
            raise SystemExit(1) from error


def _wait_for(host: str, port: int, deadline: float) -> None:
    while True:
        try:
            return try_bind(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _failure(address: tuple[str, int], setting: str, error: OSError) -> NeuroscopeError:
    reason = error.strerror or str(error)
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        setting = "serve.host"  # no port of an address that is not this machine's can be opened
    return ConfigError(
        f"Port {address[1]} on {address[0]} cannot be opened: {reason}. "
        f"Set {setting} in config/config.yaml to another."
    )


def refuse_more_workers(arbiter: Arbiter) -> None:
    """Replace the handlers by which gunicorn would start another worker, or another master."""
    for name, reason in _UNWANTED.items():
        setattr(arbiter, f"handle_{name}", partial(_refuse, arbiter, name, reason))


def forgive_pauses(arbiter: Arbiter) -> None:
    """A worker that was stopped together with its master is given its time anew: it is not hung."""
    kill_the_hung = arbiter.murder_workers
    last_look = forgiven_until = time.monotonic()

    def look() -> None:
        nonlocal last_look, forgiven_until
        now = time.monotonic()
        if now - last_look > PAUSE_S:
            forgiven_until = now + arbiter.timeout
        last_look = now
        if now >= forgiven_until:
            kill_the_hung()

    arbiter.murder_workers = look


def _refuse(arbiter: Arbiter, name: str, reason: str) -> None:
    arbiter.log.warning("SIG%s is not obeyed: %s.", name.upper(), reason)
