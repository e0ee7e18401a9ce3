"""The server as a process: how it must be started, that it loads in the background, and how it ends.

One gevent worker with two listening sockets, the chat's first. Everything here runs in that worker, after the
fork; `gunicorn.conf.py` says how gunicorn itself is set up.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import gevent
import gevent.os
import gevent.subprocess
from gevent import monkey
from werkzeug.wsgi import ClosingIterator

from neuroscope.errors import NeuroscopeError
from neuroscope.ranking import Ranking
from neuroscope.server import logs
from neuroscope.server.banner import banner, banner_fields
from neuroscope.server.chat import create_chat_app
from neuroscope.server.features import create_features_app
from neuroscope.server.gate import Gate, policy, refuse_open_bind
from neuroscope.server.loaded import Load
from neuroscope.server.observing import Observed
from neuroscope.server.open_files import room_for_streams
from neuroscope.server.results_watch import ResultsWatch
from neuroscope.server.right_start import check_caller, find_caller, listeners
from neuroscope.server.service import Service
from neuroscope.server.unreadable import answer_in_json
from neuroscope.server.watchdog import STABLE_S, Watchdog
from neuroscope.sessions import Sessions
from neuroscope.settings import more_allowed_hosts

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from gunicorn.workers.base import Worker

    from neuroscope.settings import Settings

log = logging.getLogger(__name__)

EXIT_REFUSED = 4  # gunicorn's "application failed to load": the master stops instead of trying again
EXIT_LOADING_FAILED = 3  # gunicorn's "worker failed to boot", likewise
EXIT_REPLACE = 1  # any other: the master starts another worker
SWITCH_SECONDS = 0.0005  # a busy Python thread otherwise keeps the hub waiting for ten times as long
TOKEN_PATIENCE_S = 1.2
RESPONSE_PATIENCE_S = 0.8
LOOK_SECONDS = 0.05


def start(settings: Callable[[], Settings], load: Callable[[Settings], Load]) -> WSGIApplication:
    """The WSGI application of both ports, loading in the background. Exits when it must not serve."""
    caller = find_caller()
    try:
        worker = check_caller(caller)
        settled = settings()
        chat, features = listeners(worker)
        more_hosts = more_allowed_hosts()
        key = os.environ.get(settled.serve.api_key_env, "").strip() or None
        refuse_open_bind([chat[0], features[0]], key, settled.serve.api_key_env)
    except NeuroscopeError as error:
        if caller is not None and caller.cfg.workers > 1 and caller.age > 1:
            _wait_for_the_end(caller)
        logs.announce(f"\nNot started: {error}\n", level=logs.ERROR)
        raise SystemExit(EXIT_REFUSED) from error
    sys.setswitchinterval(SWITCH_SECONDS)
    _restore_processes()
    answer_in_json()
    ranking = settled.ranking
    serve = replace(settled.serve, max_streams=room_for_streams(settled.serve.max_streams))
    defaults = Ranking(ranking.filter, ranking.threshold, ranking.top_k)
    service = Service(serve, defaults, Sessions(settled.results))
    apps = {chat[1]: create_chat_app(service), features[1]: create_features_app(service, chat_port=chat[1])}
    hosts = [chat[0], features[0], *settled.serve.allowed_hosts, *more_hosts]
    rules = policy(apps, key=key, hosts=hosts, origins=settled.serve.allowed_origins)
    gate = Gate(ByPort(apps), rules, service.tickets, features[1])
    answering = Answering(Observed(gate, service.metrics))
    gevent.get_hub().print_exception = logs.log_exception
    gevent.spawn(service.metrics.watch_lag, logs.flush)
    bring_up = partial(_bring_up, service, load(settled), chat, features)
    gevent.spawn(
        bring_up,
        key_variable=settled.serve.api_key_env if key else None,
        leave=partial(_leave_to_another, worker, service, answering, time.monotonic()),
    )
    results = ResultsWatch(service, settled.serve.results_poll_s)
    gevent.spawn(results.run)
    signal.signal(signal.SIGHUP, results.ask)
    gevent.spawn(_end_with, worker, service, answering)
    if not worker.alive:  # told to end while this was imported
        _leave()
    for interrupt in (signal.SIGINT, signal.SIGQUIT):  # Ctrl-C; gunicorn would leave without a last event
        signal.signal(interrupt, worker.handle_exit)
    return answering


class ByPort:
    """Routes by the listening socket, never by what the client says in its Host header."""

    def __init__(self, apps: dict[int, Any]) -> None:
        self._apps: dict[str, WSGIApplication] = {str(port): app for port, app in apps.items()}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return self._apps[environ["SERVER_PORT"]](environ, start_response)


class Answering:
    """Counts the requests that are being answered, streams included."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self.count = 0

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.count += 1
        try:
            body = self._app(environ, start_response)
        except BaseException:
            self._done()
            raise
        return ClosingIterator(body, self._done)

    def _done(self) -> None:
        self.count -= 1


def _bring_up(
    service: Service,
    load: Load,
    chat: tuple[str, int],
    features: tuple[str, int],
    *,
    key_variable: str | None,
    leave: Callable[[], None],
) -> None:
    try:
        loaded = service.load(load)
    except NeuroscopeError as error:
        logs.announce(f"\nNot started: {error}\n", level=logs.ERROR)
    except Exception:  # the border of the process: the reason must be seen before it ends
        log.exception("what is served could not be loaded", extra={"private": False})  # no request yet
    else:
        if service.stopping:
            return  # it ends already
        text = banner(loaded, service.ranking, chat, features, key_variable=key_variable)
        logs.announce(
            text,
            brief="Neuroscope is ready.",
            event="ready",
            **banner_fields(loaded, service.ranking, chat, features),
        )
        del loaded  # with its engine, which the watchdog may have to be rid of
        Watchdog(service, load, leave_process=leave).run()
        return
    _leave(EXIT_LOADING_FAILED)


def _restore_processes() -> None:
    """Python's own subprocess and os: the model's thread starts pip, and gevent's work in the main thread only.

    There `subprocess` has no child watcher, and `os.close` waits for a turn of the thread's loop that never comes.
    """
    for module, patched in ((subprocess, gevent.subprocess), (os, gevent.os)):
        for name in patched.__implements__:
            setattr(module, name, monkey.get_original(module.__name__, name))


def _end_with(worker: Worker, service: Service, answering: Answering) -> None:
    """gunicorn would wait its whole graceful time for open streams, then cut them: end them, then leave."""
    while worker.alive and os.getppid() == worker.ppid:  # a killed master says nothing
        gevent.sleep(LOOK_SECONDS)
    _end(service, answering)


def _end(service: Service, answering: Answering, status: int = 0) -> NoReturn:
    service.stop(TOKEN_PATIENCE_S)
    deadline = time.monotonic() + RESPONSE_PATIENCE_S
    while answering.count and time.monotonic() < deadline:
        gevent.sleep(0.01)
    _leave(status)


def _leave_to_another(worker: Worker, service: Service, answering: Answering, started: float) -> None:
    """Have gunicorn start another worker. Returns in one that was started so itself, unless that is long ago."""
    if worker.age == 1 or time.monotonic() - started > STABLE_S:
        log.error("another process takes over")
        _end(service, answering, EXIT_REPLACE)


def _wait_for_the_end(worker: Worker) -> None:
    """Leave the refusal to the first of several workers: a second one makes gunicorn's master crash."""
    while worker.alive:
        time.sleep(LOOK_SECONDS)
    _leave()


def _leave(status: int = 0) -> NoReturn:
    """Exit at once. The interpreter's own way out takes seconds, and crashes if the model still computes."""
    logs.finish()
    os._exit(status)
