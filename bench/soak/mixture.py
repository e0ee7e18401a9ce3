"""Ten thousand requests of every kind, after which the server holds no more than before them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serving import Server, wait_until

from bench.soak.report import Figure, at_most, exactly, reported
from bench.soak.server import CHAT, PATIENCE_S, STREAM, census, parsed, question, request_bytes, soaked
from bench.soak.streams import BURST, speak

AT_ONCE = 24
"""Fewer than the queue holds: a refusal would test less."""
MOST_GROWTH_MB = 16
RING_FULL = 21
"""Long answers that fill the ring of 4,096 events, which holds as much from then on."""
SOCKET = "/v1/features/ws"
HANDSHAKE = (
    f"GET {SOCKET} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
LOOKUPS = (
    "/v1/features/4",
    "/v1/features/labels",
    "/v1/features/search?q=of%205&limit=3",
    "/readyz",
    "/healthz",
)
MALFORMED = (
    (b"{", 400),
    (b"[]", 400),
    (b'{"messages": 5}', 400),
    (b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400),
    (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', 400),
    (b'{"model": "another", "messages": [{"role": "user", "content": "x"}]}', 404),
)


@dataclass(frozen=True)
class Visit:
    """One request of the mix. `number` makes it different from the others."""

    chat_port: int
    features_port: int
    number: int

    async def whole(self) -> bool:
        content = f"the answer is {self.number}"
        raw = await talk(self.chat_port, request_bytes("POST", CHAT, question(content)))
        answer = parsed(raw, 0, 0)
        return answer.status == 200 and answer.json["choices"][0]["message"]["content"] == content

    async def streamed(self) -> bool:
        asked = question(f"streamed {self.number} now", stream=True)
        raw = await talk(self.chat_port, request_bytes("POST", CHAT, asked))
        return f'"content":" {self.number}"'.encode() in raw and raw.count(b"data: [DONE]") == 1

    async def cancelled(self) -> bool:
        """Closed in the middle of a stream, or before anything was said."""
        is_stream = self.number % 2 == 0
        asked = question("[delay=0.005] " + "w " * 100, stream=is_stream)
        raw = await talk(
            self.chat_port,
            request_bytes("POST", CHAT, asked),
            until=b'"content":' if is_stream else b"",
        )
        return b'"content":' in raw or not is_stream

    async def malformed(self) -> bool:
        body, status = MALFORMED[self.number % len(MALFORMED)]
        raw = await talk(self.chat_port, request_bytes("POST", CHAT, body))
        return parsed(raw, 0, 0).status == status

    async def encode(self) -> bool:
        asked = {"text": f"what is in {self.number}"}
        raw = await talk(self.features_port, request_bytes("POST", "/v1/features/encode", asked))
        answer = parsed(raw, 0, 0)
        return answer.status == 200 and len(answer.json["tokens"]) == 4

    async def lookup(self) -> bool:
        path = LOOKUPS[self.number % len(LOOKUPS)]
        raw = await talk(self.features_port, request_bytes("GET", path))
        return parsed(raw, 0, 0).status == 200

    async def subscriber(self) -> bool:
        path = f"{STREAM}?top_k={1 + self.number % 5}" + ("&since=0" if self.number % 3 == 0 else "")
        raw = await talk(self.features_port, request_bytes("GET", path), until=b"retry: ")
        return raw.startswith(b"HTTP/1.1 200")

    async def websocket(self) -> bool:
        raw = await talk(self.features_port, HANDSHAKE, until=b"\r\n\r\n")
        return raw.startswith(b"HTTP/1.1 101")


MIX: dict[Callable[[Visit], Awaitable[bool]], int] = {
    Visit.whole: 20,
    Visit.streamed: 15,
    Visit.cancelled: 10,
    Visit.malformed: 15,
    Visit.encode: 10,
    Visit.lookup: 20,
    Visit.subscriber: 10,
}
"""Kind -> how many of a hundred."""


async def talk(port: int, request: bytes, *, until: bytes | None = None) -> bytes:
    """Everything that comes back; with `until` the connection is left as soon as that has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if until is None:
            return await reader.read()
        raw = b""
        if not until:
            await asyncio.sleep(0.01)
        while until not in raw and (piece := await reader.read(65536)):
            raw += piece
        return raw
    finally:
        writer.close()


async def visit(server: Server, kinds: list[Callable[[Visit], Awaitable[bool]]]) -> Counter[str]:
    """All of them, AT_ONCE at a time. Counts by kind those that went wrong."""
    waiting = iter(enumerate(kinds))
    wrong: Counter[str] = Counter()

    async def one_after_another() -> None:
        for number, kind in waiting:
            name = getattr(kind, "__name__", "?")
            try:
                done = kind(Visit(server.port, server.features_port, number))
                if not await asyncio.wait_for(done, PATIENCE_S):
                    wrong[name] += 1
            except (TimeoutError, OSError, ValueError, LookupError) as error:
                wrong[f"{name} ({type(error).__name__})"] += 1

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return wrong


def settled(server: Server) -> dict[str, int]:
    """The census once everyone has left."""
    server.wait_idle()
    wait_until(lambda: server.get("/readyz").json()["subscribers"] == 0, what="the subscribers' leaving")
    wait_until(lambda: still(server), what="a census that stays the same")
    return census(server)


def still(server: Server) -> bool:
    first = census(server)
    time.sleep(0.3)
    second = census(server)
    return all(first[name] == second[name] for name in ("descriptors", "greenlets"))


def run(*, requests: int, warm_up: int) -> list[Figure]:
    with soaked() as server:
        mix = dict(MIX)
        has_socket = asyncio.run(Visit(server.port, server.features_port, 0).websocket())
        if has_socket:
            mix[Visit.websocket] = 5
        kinds = random.Random(7).choices(list(mix), list(mix.values()), k=warm_up + requests)
        for _ in range(RING_FULL):
            speak(server, BURST)
        asyncio.run(visit(server, kinds[:warm_up]))
        before, started = settled(server), time.monotonic()
        wrong = asyncio.run(visit(server, kinds[warm_up:]))
        took, after = time.monotonic() - started, settled(server)
        faults = server.output.count("Traceback")
    if wrong:
        print(f"  wrong: {dict(wrong)}", flush=True)
    growth = {name: after[name] - before[name] for name in before}
    kinds_said = ", ".join(kind.__name__ for kind in mix)
    return [
        exactly("wrong", f"wrong answers to {requests:,} requests ({kinds_said})", 0, wrong.total(), ""),
        exactly("tracebacks", "tracebacks in the log", 0, faults, ""),
        *(
            at_most(name, f"{name} more than after the first {warm_up:,}", 0, growth[name], "")
            for name in ("descriptors", "greenlets", "threads")
        ),
        at_most(
            "memory", "memory more than after them", MOST_GROWTH_MB, round(growth["rss_kb"] / 1024, 1), "MB"
        ),
        reported("rate", "requests a second", round(requests / took), "1/s"),
    ]
