"""An answer token by token with its features: the chat port's chunks and the features stream, put together.

Every token's event is published before the chunk that names it, so a token that is said has its features on the way.
What never comes is told as `unseen`, and is not waited for again and again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
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
        self._inbox: Queue[Event] = Queue()
        self._put_back: deque[Event] = deque()
        self._is_wanted = False
        self._is_over = False
        self._cut: Event | None = None
        begun: Queue[ServerError | None] = Queue()
        threading.Thread(target=self._listen, args=(begun, view), daemon=True).start()
        if (error := begun.get()) is not None:
            raise error

    def answer(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Answer:
        """The answer to `messages`, which begins when it is iterated over."""
        return Answer(self, self._client, messages, fields)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While an answer is read its events are kept; what comes meanwhile of others, or before, is not."""
        self._put_back.clear()
        while not self._inbox.empty():
            self._inbox.get()
        self._is_wanted = True
        if self._cut is not None:
            self._inbox.put(self._cut)
        try:
            yield
        finally:
            self._is_wanted = False

    def next(self, completion_id: str, timeout_s: float | None) -> Event | None:
        """The next event about an answer, or about the stream; None when none comes in time or any more."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            event = self._put_back.popleft() if self._put_back else self._take(until)
            if (
                event is None
                or event.name in OF_THE_STREAM
                or event.data.get("completion_id") == completion_id
            ):
                return event

    def put_back(self, event: Event) -> None:
        """Have `next` give this one again."""
        self._put_back.appendleft(event)

    def _take(self, until: float | None) -> Event | None:
        until = time.monotonic() if self._is_over else until
        try:
            return self._inbox.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except Empty:
            return None

    def _listen(self, begun: Queue[ServerError | None], view: Mapping[str, Query]) -> None:
        try:
            for event in self._client.follow(None, **view):
                if event.name == "open":
                    begun.put(None)
                    self._cut = None
                elif event.name == "lost":
                    self._cut = event
                if self._is_wanted:
                    self._inbox.put(event)
        except Exception as error:  # the border of a thread: who waits for it must not wait for ever
            self._is_over = True
            self._cut = Event("lost", "", {"reason": str(error), "retry_in_s": None})
            self._inbox.put(self._cut)
            begun.put(
                error
                if isinstance(error, ServerError)
                else ServerError(f"The features stream cannot be read ({error}).")
            )


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
        chat = self._client.chat(self._messages, **self._fields)
        with self._listener.listening(), closing(chat) as chunks:
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
