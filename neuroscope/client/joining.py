"""An answer token by token with its features: the chat port's chunks and the features stream, put together.

Every token's event is published before the chunk that names it, so a token that is said has its features on the way.
What never comes is told as `unseen`, and is not waited for again and again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from queue import Empty, Queue
from typing import Any

from neuroscope.client.asking import Client, Event, Query
from neuroscope.errors import ServerError

WAIT_S = 5.0
"""How long a token that was said is held back for its features."""
ENDS = ("generation_complete", "generation_error")
OF_THE_STREAM = ("gap", "lost", "shutdown")
"""Events that are about no answer and matter to every one."""


class Listener:
    """One subscription for the answers of a conversation, read in a thread of its own.

    Raises ServerError when it cannot begin. `view` is what its subscriber sees, as the stream's parameters.
    """

    def __init__(self, client: Client, **view: Query) -> None:
        self._client = client
        self._inbox: Queue[Event | ServerError] = Queue()
        self._put_back: deque[Event] = deque()
        self._is_over = False
        threading.Thread(target=self._listen, args=(view,), daemon=True).start()
        first = self._inbox.get()
        if isinstance(first, ServerError):
            raise first

    def answer(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Answer:
        """The answer to `messages`, which begins when it is iterated over."""
        return Answer(self, self._client, messages, fields)

    def next(self, completion_id: str, timeout_s: float | None) -> Event | None:
        """The next event about an answer, or about the stream; None when none comes in time or any more."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._put_back:
                event = self._put_back.popleft()
            else:
                found = self._take(until)
                if found is None:
                    return None
                event = found
            if event.name in OF_THE_STREAM or event.data.get("completion_id") == completion_id:
                return event

    def put_back(self, event: Event) -> None:
        """Have `next` give this one again."""
        self._put_back.appendleft(event)

    def _take(self, until: float | None) -> Event | None:
        if self._is_over:
            return None
        try:
            found = self._inbox.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except Empty:
            return None
        if isinstance(found, ServerError):
            self._is_over = True
            return Event("lost", "", {"reason": str(found), "retry_in_s": None})
        return found

    def _listen(self, view: Mapping[str, Query]) -> None:
        try:
            for event in self._client.follow(None, **view):
                self._inbox.put(event)
        except ServerError as error:
            self._inbox.put(error)
        except Exception as error:  # the border of a thread: who waits for it must not wait for ever
            self._inbox.put(ServerError(f"The features stream cannot be read any more ({error})."))


class Answer:
    """Iterate over it for the events of one answer, each token once it is said.

    `unseen` has the `completion_id`, `token_index` and `token` of a token without its features. Raises ServerError
    when the answer fails; what was said until then is in `text`.
    """

    def __init__(
        self,
        listener: Listener,
        client: Client,
        messages: Sequence[Mapping[str, Any]],
        fields: Mapping[str, Any],
    ) -> None:
        self.completion_id = ""
        self.text = ""
        self.finish_reason: str | None = None
        self._listener = listener
        self._client = client
        self._messages = messages
        self._fields = fields
        self._wait_s = WAIT_S

    def __iter__(self) -> Iterator[Event]:
        with closing(self._client.chat(self._messages, **self._fields)) as chunks:
            for chunk in chunks:
                if not self.completion_id:
                    self.completion_id = str(chunk.get("id"))
                    if (self._fields.get("neuroscope") or {}).get("prompt_features"):
                        yield from self._before_the_first()
                yield from self._said(chunk)
        while (event := self._listener.next(self.completion_id, self._wait_s)) is not None:
            yield event
            if event.name in ENDS:
                return

    def _before_the_first(self) -> Iterator[Event]:
        """What comes while the prompt runs; the chat says nothing meanwhile."""
        while (event := self._listener.next(self.completion_id, None)) is not None:
            if event.name in ("feature_activation", *ENDS):
                self._listener.put_back(event)
                return
            yield event
            if event.name == "lost":
                return

    def _said(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        text = ""
        for choice in chunk.get("choices") or ():
            text += choice.get("delta", {}).get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.text += text
        indices = (chunk.get("neuroscope") or {}).get("token_indices", [])
        if not indices and text:
            yield self._unseen(None, text)
        for index in indices:
            # The text of a chunk is its last token's: those before it were held back and added none.
            yield from self._token(index, text if index == indices[-1] else "")

    def _token(self, index: int, text: str) -> Iterator[Event]:
        while (event := self._listener.next(self.completion_id, self._wait_s)) is not None:
            if event.name == "feature_activation":
                if (found := event.data.get("token_index", -1)) < index:
                    continue  # came after it was given up
                self._wait_s = WAIT_S
                if found == index:
                    yield event
                    return
            if event.name in ("feature_activation", *ENDS):
                self._listener.put_back(event)
                break
            yield event
        else:
            self._wait_s = 0.0
        yield self._unseen(index, text)

    def _unseen(self, index: int | None, text: str) -> Event:
        return Event("unseen", "", {"completion_id": self.completion_id, "token_index": index, "token": text})
