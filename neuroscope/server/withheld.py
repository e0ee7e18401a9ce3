"""What a line of the log may tell: none of what a client said, unless `serve.log_prompts` asks for it.

What an exception says is withheld, since it may quote the prompt; where it was raised is told.
"""

from __future__ import annotations

import copy
import logging
import re
import sys
import traceback

from neuroscope.errors import NeuroscopeError, PromptError
from neuroscope.server.note import current

WITHHELD = "(what it says is withheld, as it may quote a prompt; serve.log_prompts: true shows it)"
_SPEAKABLE = (NeuroscopeError, MemoryError, OSError, ImportError, SystemExit, KeyboardInterrupt)
"""Exceptions whose words are ours, the system's or Python's own."""
_OF_THE_START = ("Exception in worker process", "Unhandled exception in main loop")
"""gunicorn's words for what happens outside of every request."""
_QUERY = re.compile(r"\?\S+")
_UNREADABLE = re.compile(r"(?s)(Invalid request from ip=\S*):.*")


def fit_to_be_seen(record: logging.LogRecord, log_prompts: bool) -> logging.LogRecord:
    """A copy with the request's id, and without what a client may have put into it."""
    record = copy.copy(record)
    if getattr(record, "request_id", None) is None:
        note = current()
        record.request_id = note.request_id if note is not None else None
    if record.name == "gunicorn.error":
        record.msg, record.args = _without_requests(record.getMessage()), None
    if record.exc_info and record.exc_info[1] is not None:
        is_private = getattr(record, "private", not record.getMessage().startswith(_OF_THE_START))
        record.exc_text, record.exc_info = _told(record.exc_info[1], is_private and not log_prompts), None
    return record


def _without_requests(message: str) -> str:
    """gunicorn quotes request lines, with their query, and what was wrong with them."""
    if found := _UNREADABLE.fullmatch(message):
        error = sys.exc_info()[0]
        return f"{found[1]}: {error.__name__ if error else 'it cannot be read'}"
    return _QUERY.sub("?...", message)


def _told(error: BaseException, is_private: bool, seen: frozenset[int] = frozenset()) -> str:
    """The traceback, causes first. Without what the exceptions say, where that may be a client's words."""
    before = ""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in seen:
        before = f"{_told(cause, is_private, seen | {id(error)})}\n\nand because of that or while it was handled:\n\n"
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    may_speak = isinstance(error, _SPEAKABLE) and not isinstance(error, PromptError)
    may_speak = may_speak or kind.__name__ == "OutOfMemoryError"  # torch's
    says = str(error) if may_speak or not is_private else WITHHELD
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{before}Traceback (most recent call last):\n{frames}{name}: {says}".rstrip()
