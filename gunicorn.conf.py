"""How gunicorn runs `neuroscope.wsgi`: two ports, one gevent worker, an end within three seconds."""

import os
import signal

from neuroscope import settings
from neuroscope.errors import NeuroscopeError
from neuroscope.server import logs, master
from neuroscope.server.hangup import ignore_hangups, pass_on_hangups

try:
    _serve = settings.load().serve
except NeuroscopeError as error:
    raise SystemExit(f"Not started: {error}") from None
_host = f"[{_serve.host}]" if ":" in _serve.host else _serve.host

bind = [f"{_host}:{_serve.port}", f"{_host}:{_serve.features_port}"]  # the chat first, the features second
worker_class = "gevent"
workers = 1  # each would load the model
worker_connections = _serve.max_streams + 1000  # a full pool hangs; the application's own limits answer first
preload_app = False  # torch does not survive a fork
control_socket_disable = True
logger_class = logs.gunicorn_logger(_serve.log_format, log_prompts=_serve.log_prompts)
loglevel = _serve.log_level
timeout = 120  # a model that holds the interpreter while it loads is not a hung worker
graceful_timeout = 3 + _serve.drain_s
keepalive = 30  # seconds; also the longest a client may take for its headers
limit_request_line = 8190  # a thousand feature numbers in a URL
forwarded_allow_ips = ""  # nothing here depends on what a proxy says, so nobody is believed


def on_starting(server):
    """Before the ports are opened: gunicorn would try for five seconds, and name no remedy."""
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)  # one worker: its metrics need no files
    pass_on_hangups(server)  # gunicorn's own answer to SIGHUP loads the model again and cuts every stream
    master.check_addresses(server)


def when_ready(server):
    """After the master's signal handlers are in place."""
    master.refuse_more_workers(server)
    master.forgive_pauses(server)


def on_exit(_server):
    """A second Ctrl-C while the interpreter is cleared away would make a good end look like a failure."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    logs.finish()


def worker_exit(_server, _worker):
    """What could not be written at once gets a moment."""
    logs.finish()


def post_fork(_server, worker):
    """Let a worker that is told to end before it has handlers of its own do so: the master's would swallow it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    ignore_hangups(worker)
