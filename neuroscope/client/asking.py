"""Requests to both ports of a running server, and its two streams.

A server that is still loading is waited for; every other refusal is raised. Nothing is asked twice otherwise: a
question that was half answered may not be asked again by itself.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2

from neuroscope.client.refusals import LOADING, late_failure, not_ours, refusal, told
from neuroscope.client.sse import Message, Parser
from neuroscope.errors import ConfigError, ServerError, shown

CONNECT_S = 10.0
ANSWER_S = 600.0
"""Of an answer that comes whole: the model may have to run, and others may be before us."""
SILENCE_S = 90.0
"""Of a stream: the server says something every 15 s, if only a comment."""
RETRY_S = 2.0
LONGEST_RETRY_S = 15.0
STREAM, JSON = "text/event-stream", "application/json"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""What a server listens on, and where its own machine reaches it."""
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%[\w.-]+)?")

Query = str | int | float | Sequence[int] | None


class Event(NamedTuple):
    """One event of the features stream."""

    name: str
    """`feature_activation` and the server's others; `open` once subscribed; `lost` (of `follow`) when cut off."""
    id: str
    """Where to go on after it, as `since`."""
    data: dict[str, Any]


class Client:
    """A running server at `host`. `tell` is called with a sentence whenever we wait for it to load.

    Every method raises ServerError: NoServerError where nobody listens.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        features_port: int = 8081,
        key: str | None = None,
        *,
        key_variable: str = "NEUROSCOPE_API_KEY",
        tell: Callable[[str], object] = lambda sentence: None,
        silence_s: float = SILENCE_S,
        patience_s: float = ANSWER_S,
    ) -> None:
        self._places = {
            name: _place(host, number) for name, number in (("chat", port), ("features", features_port))
        }
        self._key_variable = key_variable
        self._headers = _headers(key, key_variable)
        self._tell = tell
        self._silence_s = silence_s
        self._patience_s = patience_s
        # Plain HTTP, and no proxy of the environment between us and our own machine: reading the machine's
        # certificates would take most of a command's time.
        nothing_trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._http = httpx2.Client(transport=httpx2.HTTPTransport(verify=nothing_trusted), trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def features_place(self) -> str:
        """Host and port of the features."""
        return self._places["features"]

    def close(self) -> None:
        """Ends its connections."""
        self._http.close()

    def page(self, path: str) -> str:
        """The address of a page of the features port, for a browser."""
        return f"http://{self._places['features']}{path}"

    def get(self, path: str, **query: Query) -> Any:
        """The JSON at a path of the features port."""
        return self._json("GET", path, query)

    def post(self, path: str, body: Mapping[str, Any], **query: Query) -> Any:
        """What a path of the features port answers to a JSON object."""
        return self._json("POST", path, query, body)

    def fetch(self, path: str, **query: Query) -> bytes:
        """The bytes at a path of the features port, whatever they are."""
        with self._open("features", "GET", path, query, timeout_s=ANSWER_S) as response:
            return response.read()

    def chat(
        self, messages: Sequence[Mapping[str, Any]], **fields: Any
    ) -> Generator[dict[str, Any], None, None]:
        """The chunks of an answer as they come. Closing the iterator ends the answer.

        `fields` go into the request; None means not given.
        """
        body = {"messages": list(messages), **_given(fields), "stream": True}
        path = "/v1/chat/completions"
        with self._open("chat", "POST", path, {}, body, kind=STREAM, timeout_s=self._silence_s) as response:
            for message in self._messages(response, Parser()):
                if message.data == "[DONE]":
                    return
                chunk = self._read("chat", message.data)
                if "error" in chunk:
                    raise late_failure(chunk["error"], self._places["chat"])
                yield chunk
            raise ServerError(f"The server at {self._places['chat']} broke off in the middle of its answer.")

    def events(self, since: str | None = None, **query: Query) -> Generator[Event, None, None]:
        """The features stream, after the event `since`, else from now on; `open` first, once subscribed.

        Ends when the server ends it. `query` is how this subscriber sees it (`top_k`, `filter`, `completion_id`).
        """
        path = "/v1/features/stream"
        asked = {"since": since, **query}
        with self._open("features", "GET", path, asked, kind=STREAM, timeout_s=self._silence_s) as response:
            parser = Parser()
            for message in self._messages(response, parser, with_opening=True):
                data = self._read("features", message.data) if message.data else {}
                yield Event(message.name, message.id, data)

    def follow(self, since: str | None = None, **query: Query) -> Generator[Event, None, None]:
        """As `events`, for ever: when cut off it says `lost` and comes back to where it was.

        Raises ServerError when the first connection fails, and later for what waiting does not mend.
        """
        last, is_in, wait_s = since, False, RETRY_S
        while True:
            try:
                for event in self.events(last, **query):
                    last, is_in, wait_s = event.id or last, True, RETRY_S
                    yield event
                reason = "The server closed the stream."
            except ServerError as error:
                if not is_in or not error.may_pass:
                    raise
                reason = str(error)
            yield Event("lost", last or "", {"reason": reason, "retry_in_s": wait_s})
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LONGEST_RETRY_S)

    def _json(
        self, method: str, path: str, query: Mapping[str, Query], body: Mapping[str, Any] | None = None
    ) -> Any:
        with self._open("features", method, path, query, body, kind=JSON, timeout_s=ANSWER_S) as response:
            read = response.read()
        try:
            return json.loads(read)
        except (ValueError, RecursionError) as error:
            raise ServerError(
                f"{self._places['features']} sent JSON that cannot be read: {error}."
            ) from error

    def _read(self, port: str, data: str) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ServerError(f"{self._places[port]} sent an event that is no JSON object: {shown(data)}.")
        return found

    def _messages(
        self, response: httpx2.Response, parser: Parser, *, with_opening: bool = False
    ) -> Iterator[Message]:
        """The events in a response; before them, where asked, `open` for the block that says where the stream is."""
        for piece in response.iter_raw():
            try:
                messages = list(parser.feed(piece))
            except ValueError as error:
                raise ServerError(f"{response.url.host} sent what is no event stream: {error}.") from error
            if with_opening and (parser.opening_id or messages):
                with_opening = False
                yield Message("open", parser.opening_id, "")
            yield from messages

    @contextmanager
    def _open(
        self,
        port: str,
        method: str,
        path: str,
        query: Mapping[str, Query],
        body: Mapping[str, Any] | None = None,
        *,
        kind: str | None = None,
        timeout_s: float,
    ) -> Iterator[httpx2.Response]:
        """The response of the right status and kind, waited for while the model loads; its body is unread."""
        place, patient_until = self._places[port], time.monotonic() + self._patience_s
        # JSON escapes a surrogate without its partner, which UTF-8 cannot carry.
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {**self._headers, b"Accept": (kind or "*/*").encode()}
        if body is not None:
            headers[b"Content-Type"] = JSON.encode()
        said = ""
        while True:
            with (
                told(place, timeout_s),
                self._http.stream(
                    method,
                    f"http://{place}{path}",
                    params={name: _parameter(value) for name, value in _given(query).items()},
                    content=content,
                    headers=headers,
                    timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S),
                ) as response,
            ):
                if response.is_success:
                    if kind is not None and not response.headers.get("content-type", "").startswith(kind):
                        raise not_ours(response, place)
                    yield response
                    return
                error = refusal(
                    response, response.read(), place, self._key_variable, b"Authorization" in self._headers
                )
            if error.code not in LOADING or time.monotonic() > patient_until:
                raise error
            if str(error) != said:
                said = str(error)
                self._tell(f"{said} Waiting; Ctrl-C gives up.")
            time.sleep(min(error.retry_after_s or RETRY_S, LONGEST_RETRY_S))


def _place(host: str, port: int) -> str:
    """`127.0.0.1:8080`. Raises ConfigError for a host that is none."""
    bare = host.strip().removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(bare):
        raise ConfigError(f"{shown(host)} is no host. Give a name or an address with --host, as 127.0.0.1.")
    bare = _ANYWHERE.get(bare, bare)
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _headers(key: str | None, variable: str) -> dict[bytes, bytes]:
    # No compression: an answer is read as it comes, and small.
    headers = {b"Accept-Encoding": b"identity", b"User-Agent": b"neuroscope"}
    if key:
        if not key.strip().isprintable():
            raise ConfigError(f"{variable} holds characters that no key can have, such as a line break.")
        headers[b"Authorization"] = b"Bearer " + key.strip().encode("utf-8", "surrogateescape")
    return headers


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _parameter(value: str | int | float | Sequence[int]) -> str:
    return str(value) if isinstance(value, str | int | float) else ",".join(map(str, value))
