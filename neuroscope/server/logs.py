"""The process's own words: one line an event, as text or as JSON, none of it a prompt, a key or a ticket.

Set up in gunicorn's master and inherited by the worker: gunicorn's log, ours, warnings, and what a library prints.
What of a line is withheld, since a client may have said it, is decided in `withheld.py`.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from types import TracebackType
from typing import Any

from gunicorn import glogging
from pythonjsonlogger.json import JsonFormatter

from neuroscope.server.outlet import Outlet
from neuroscope.server.withheld import fit_to_be_seen

ERROR = logging.ERROR
FORMATS = ("text", "json")
FINISH_SECONDS = 0.2
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def set_up(form: str, *, log_prompts: bool = False) -> None:
    """Have this process log in `form`, one of FORMATS. May be called again."""
    _keep_standard_descriptors()
    out, err = (Outlet(_descriptor(stream)) for stream in (sys.__stdout__, sys.__stderr__))
    handler = LogHandler(err, form, log_prompts=log_prompts)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    # No line tells of either, and they are slow to find.
    logging.logThreads = logging.logMultiprocessing = False
    if form == "json":
        sys.stdout = Printed(sys.__stdout__, logging.getLogger("stdout"))
        sys.stderr = Printed(sys.__stderr__, logging.getLogger("stderr"))
        for name in ("stdout", "stderr"):
            logging.getLogger(name).setLevel(logging.INFO)
        sys.excepthook = _log_uncaught
    else:
        sys.stdout = Printed(sys.__stdout__, out)
        sys.stderr = Printed(sys.__stderr__, err)


def announce(text: str, *, brief: str | None = None, level: int = logging.INFO, **fields: Any) -> None:
    """Something for the person at the terminal: `text` as it stands; in JSON `brief`, else `text`, with `fields`."""
    handler = _handler()
    if handler is not None and handler.is_json:
        logging.getLogger("neuroscope").log(level, "%s", brief or text.strip(), extra=fields)
    else:
        print(text, file=sys.stderr if level > logging.INFO else sys.stdout, flush=True)


def error_as_json(message: str) -> str:
    """One line, as a process in JSON would tell of it that is not set up yet."""
    record = logging.LogRecord("neuroscope", logging.ERROR, __file__, 0, message, None, None)
    return JsonLines(log_prompts=False).format(record)


def flush() -> None:
    """Write what waits and can be written at once, and tell what was dropped. Called now and then."""
    for outlet in _outlets():
        outlet.flush()
        if dropped := outlet.take_untold():
            logging.getLogger(__name__).warning("%d lines of the log were dropped: nobody read them", dropped)


def finish() -> None:
    """Before the process ends."""
    for outlet in _outlets():
        outlet.finish(FINISH_SECONDS)


def log_exception(
    context: object, kind: type[BaseException], error: BaseException, trace: TracebackType
) -> None:
    """For gevent, which would print the arguments too: a greenlet that nobody waits for has failed."""
    logging.getLogger("neuroscope").error("a greenlet failed", exc_info=(kind, error, trace))


class LogHandler(logging.Handler):
    """Has no lock: the outlet needs none, and a lock of gevent's must not be taken in the model's thread."""

    def __init__(self, outlet: Outlet, form: str, *, log_prompts: bool = False) -> None:
        super().__init__()
        self.outlet = outlet
        self.is_json = form == "json"
        self.setFormatter(JsonLines(log_prompts) if self.is_json else TextLines(log_prompts))

    def handle(self, record: logging.LogRecord) -> bool:
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # a wrong call of the log must not fail the request it tells of
            line = f'{{"level": "ERROR", "message": "a line of {record.name} could not be made"}}'
        self.outlet.write(f"{line}\n")


class TextLines(logging.Formatter):
    """One line a record and no control character in it; a traceback follows below."""

    def __init__(self, log_prompts: bool) -> None:
        super().__init__("%(asctime)s [%(process)d] [%(levelname)s] %(message)s")
        self._log_prompts = log_prompts

    def format(self, record: logging.LogRecord) -> str:
        return super().format(fit_to_be_seen(record, self._log_prompts))

    def formatMessage(self, record: logging.LogRecord) -> str:
        named = f"[{record.request_id}] " if record.request_id else ""  # type: ignore[attr-defined]
        record.message = f"{named}{record.message}".rstrip().translate(_CONTROL)
        return super().formatMessage(record)


class JsonLines(JsonFormatter):
    """One object a record: time, level, logger, process, message, what else is known, a traceback as `exc_info`."""

    def __init__(self, log_prompts: bool) -> None:
        names = {"levelname": "level", "name": "logger"}
        super().__init__(
            "%(levelname)s %(name)s %(process)d %(message)s", rename_fields=names, timestamp="time"
        )
        self._log_prompts = log_prompts

    def format(self, record: logging.LogRecord) -> str:
        return super().format(fit_to_be_seen(record, self._log_prompts))


class Printed(io.TextIOBase):
    """In place of sys.stdout or sys.stderr: what is printed goes to an outlet as it is, or to a log line by line."""

    def __init__(self, replaced: Any, sink: Outlet | logging.Logger) -> None:
        self._replaced = replaced
        self._sink = sink
        self._line = ""

    @property
    def outlet(self) -> Outlet | None:
        return self._sink if isinstance(self._sink, Outlet) else None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def write(self, text: str) -> int:
        if isinstance(self._sink, Outlet):
            self._sink.write(text)
            return len(text)
        *lines, self._line = re.split(r"[\r\n]+", self._line + text)
        for line in lines:
            if line.strip():
                self._sink.info("%s", line)
        return len(text)

    def fileno(self) -> int:
        if self._replaced is None:
            raise io.UnsupportedOperation("this process was started without this stream")
        return int(self._replaced.fileno())

    def isatty(self) -> bool:
        return self._replaced is not None and bool(self._replaced.isatty())

    def writable(self) -> bool:
        return True


def gunicorn_logger(form: str, *, log_prompts: bool) -> type[glogging.Logger]:
    """What gunicorn.conf.py has gunicorn log with. The process's log is set up when gunicorn makes one."""

    class Chosen(_GunicornLogger):
        def __init__(self, cfg: Any) -> None:
            set_up(form, log_prompts=log_prompts)
            super().__init__(cfg)

    return Chosen


class _GunicornLogger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own lines in the same form. A file named by `--error-logfile` gets everything."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        logging.getLogger("neuroscope").setLevel(self.loglevel)  # libraries only warn
        if (ours := _handler()) is None:
            return
        for handler in [h for h in self.error_log.handlers if getattr(h, "_gunicorn", False)]:
            if isinstance(handler, logging.FileHandler):
                handler.setFormatter(ours.formatter)
                logging.getLogger().addHandler(handler)
            else:
                self.error_log.handlers = [ours]


def _handler() -> LogHandler | None:
    """What `set_up` made, if it was called."""
    return next((h for h in logging.getLogger().handlers if isinstance(h, LogHandler)), None)


def _outlets() -> list[Outlet]:
    handler = _handler()
    found = [s.outlet for s in (sys.stdout, sys.stderr) if isinstance(s, Printed)]
    found.append(handler.outlet if handler is not None else None)
    return [outlet for outlet in dict.fromkeys(found) if outlet is not None]


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    told = {"exc_info": (kind, error, trace), "extra": {"private": False}}
    logging.getLogger("neuroscope").critical("the process ends", **told)  # type: ignore[arg-type]


def _descriptor(stream: Any) -> int | None:
    """Of a stream this process was started with."""
    try:
        return int(stream.fileno())
    except (AttributeError, OSError, ValueError):  # closed by whoever started it: >&-
        return None


def _keep_standard_descriptors() -> None:
    """A socket or database opened as descriptor 2 would be written into by whatever prints to the standard error."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free: this one
