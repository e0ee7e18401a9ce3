"""Results that are replaced while the server runs: read as a whole set, put in place in one step.

By looking every few seconds, and when asked (SIGHUP). Reading happens in a thread of its own, so that neither the hub
nor a request's lookups wait for it. What is done about files that do not fit is `known`'s business.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gevent.event import Event

from neuroscope.server.inference import NativeThread
from neuroscope.server.loaded import Source
from neuroscope.server.service import Service

if TYPE_CHECKING:
    from neuroscope.known import Known, Seen

log = logging.getLogger(__name__)

PATIENCE = 3
"""Looks at the same files that are refused before it is said: they may be half of a new set."""
LONGEST_PAUSE = 32
"""Looks between two tries at files that do not change: what refuses them may be a lock."""


class ResultsWatch:
    """One per process. `run` is a greenlet's."""

    def __init__(self, service: Service, every_s: float) -> None:
        self._service = service
        self._every_s = every_s or None
        self._thread = NativeThread()
        self._asked = Event()
        self._last: Seen | None = None
        self._failed_at: Seen | None = None
        self._refusals = 0
        self._left = self._pause = 1

    def ask(self, *_signal: object) -> None:
        """Read the results at once, and say how they are."""
        self._asked.set()

    def run(self) -> None:
        while True:
            asked = self._asked.wait(self._every_s)
            self._asked.clear()
            try:
                self.look(asked=bool(asked))
            except Exception:  # the border of a look: the next one must happen, and tell something new
                log.exception("the results could not be read anew")
                self._failed_at = self._last

    def look(self, *, asked: bool) -> None:
        """One look; reads the files when they have changed and have stopped to, or when asked."""
        loaded = self._service.serving
        if loaded is None or loaded.source is None or loaded.known is None:
            return
        known, source = loaded.known, loaded.source
        seen = self._thread.call(source.look)
        is_settled, self._last = seen == self._last, seen
        if not is_settled:
            self._refusals, self._left, self._pause = 0, 1, 1
        if asked or (is_settled and self._is_due(seen, known)):
            self._read(source, known, is_asked=asked)

    def _is_due(self, seen: Seen, known: Known) -> bool:
        if seen == self._failed_at:
            return False
        if seen != known.seen:
            return True
        self._left -= 1
        return known.refused is not None and self._left <= 0

    def _read(self, source: Source, known: Known, *, is_asked: bool) -> None:
        found = self._thread.call(source.find, known)
        if not self._is_wanted(source, known, found, is_asked=is_asked):
            if found.results is not None and found.results is not known.results:
                self._thread.call(found.results.close)
            return
        self._service.use_known(found)
        for sentence in found.degraded:
            log.warning("results read anew: %s", sentence)
        if not found.degraded:
            log.info("results read anew: %s labels", f"{sum(found.label_sources.values()):,}")

    def _is_wanted(self, source: Source, known: Known, found: Known, *, is_asked: bool) -> bool:
        if self._thread.call(source.look) != found.seen:  # written meanwhile
            if is_asked:
                self.ask()
            return False
        serving = self._service.serving
        if serving is None or serving.known is not known:  # loaded anew meanwhile
            return False
        if found.refused is None:
            return True
        self._refusals += 1
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._left = self._pause
        is_news = found.seen != known.seen or found.degraded != known.degraded
        return is_asked or (is_news and self._refusals >= PATIENCE)
