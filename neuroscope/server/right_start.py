"""How the server must be started, or else it says with which command: gunicorn has many flags that it cannot bear."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from gunicorn.workers.base import Worker

from neuroscope.errors import ConfigError
from neuroscope.settings import repository_root

RIGHT_COMMAND = "gunicorn -c gunicorn.conf.py neuroscope.wsgi"


def find_caller() -> Worker | None:
    """The gunicorn worker that is loading this, found among the callers: WSGI does not hand it over."""
    frame = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Worker):
            return caller
        frame = frame.f_back  # type: ignore[assignment]
    return None


def check_caller(caller: Worker | None) -> Worker:
    """The caller, which is as it must be. Raises ConfigError, with the command that starts it so."""
    if caller is None:
        raise _wrong_start("it is loaded outside a gunicorn worker (--preload, or another server)")
    if (
        "gevent" not in caller.cfg.worker_class_str or caller.server_class is not None
    ):  # pywsgi hides the client
        raise _wrong_start(f"its worker is of the kind {caller.cfg.worker_class_str!r}, not gevent")
    if caller.cfg.workers != 1:
        raise _wrong_start(f"{caller.cfg.workers} workers would each load the model; it needs one")
    if caller.cfg.reuse_port:
        raise _wrong_start(
            "with --reuse-port a second server could share its ports, and each have half the requests"
        )
    if caller.cfg.max_requests:
        raise _wrong_start(
            "with --max-requests it would end every stream and load the model again, ever anew"
        )
    if caller.cfg.is_ssl:
        raise _wrong_start(
            "through TLS it does not see when a client leaves, and would work on for it; a proxy before it can "
            "speak TLS"
        )
    return caller


def listeners(worker: Worker) -> tuple[tuple[str, int], tuple[str, int]]:
    """Address and port of the chat's and of the features' socket."""
    names = [listener.getsockname() for listener in worker.sockets]
    if len(names) != 2 or not all(isinstance(name, tuple) for name in names):
        raise _wrong_start(f"it listens on {len(names)} addresses ({names}); it needs two TCP ports")
    (chat_host, chat_port, *_), (features_host, features_port, *_) = names
    return (chat_host, chat_port), (features_host, features_port)


def _wrong_start(reason: str) -> ConfigError:
    root = repository_root()
    elsewhere = "" if Path.cwd() == root else f"cd {shlex.quote(str(root))} && "
    return ConfigError(
        f"neuroscope.wsgi is started in the wrong way: {reason}. In the repository's folder, without "
        f"WEB_CONCURRENCY, GUNICORN_CMD_ARGS and flags that say otherwise, run:\n\n    {elsewhere}{RIGHT_COMMAND}"
    )
