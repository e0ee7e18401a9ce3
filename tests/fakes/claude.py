"""Anthropic's Messages and Message Batches API on loopback, for the real SDK: it answers from the examples it is
shown, keeps account of what was paid for, and goes wrong as it is told.

`python -m fakes.claude PORT FAULTS` serves it to a benchmark, with that share of faults.
"""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fakes.loopback import Loopback

MARK = re.compile(r"(?<=DATA )[0-9a-f]{16}(?=-----)")
"""What differs between two prompts of the same content."""


@dataclass(frozen=True)
class Status:
    """An error answer."""

    code: int
    type: str = "api_error"
    message: str = "scripted"
    headers: dict[str, str] = field(default_factory=dict)
    error_code: str | None = None


@dataclass(frozen=True)
class Says:
    """An answer that is paid for, whatever it is worth."""

    text: str
    stop_reason: str = "end_turn"


@dataclass(frozen=True)
class Reset:
    """The connection breaks; with `paid` after the work was done."""

    paid: bool = False


@dataclass(frozen=True)
class Garbage:
    """Status 200 and a body that is no JSON."""


@dataclass(frozen=True)
class Batched:
    """What a batch has instead of an answer: expired, canceled, or errored with a type."""

    kind: str
    error: str = "api_error"


Fault = Status | Says | Reset | Garbage | Batched
RATE_LIMITED = Status(429, "rate_limit_error", "slow down", {"retry-after": "0.05"})
OVERLOADED = Status(529, "overloaded_error")
UNKNOWN_KEY = Status(401, "authentication_error", "invalid x-api-key")
NO_CREDIT = Status(
    400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
)
SPEND_LIMIT = Status(429, "rate_limit_error", "limit", error_code="enforced_spend_limit_reached")


def label_from_examples(body: dict[str, Any]) -> str:
    """The commonest token among the examples of a label prompt."""
    examples = [json.loads(line) for line in body["messages"][0]["content"].splitlines() if line[:1] == "{"]
    token, count = Counter(example["token"].strip() or "blank" for example in examples).most_common(1)[0]
    share = count / len(examples)
    return json.dumps(
        {
            "pattern": f"{share:.0%} of the tokens are the same.",
            "label": f"the token {re.sub(r'[^A-Za-z0-9]', '', token)[:40] or 'sign'}",
            "confidence": "high" if share > 0.8 else "medium" if share > 0.4 else "low",
        }
    )


def verdicts_by_word(body: dict[str, Any]) -> str:
    """Whether each window of a question about a label holds the label's last word."""
    lines = body["messages"][0]["content"].splitlines()
    label = next(line.removeprefix("Label: ") for line in lines if line.startswith("Label: "))
    word = json.loads(label).split()[-1]
    return json.dumps({"verdicts": [int(word in line) for line in lines if line[:1].isdigit()]})


def any_answer(body: dict[str, Any]) -> str:
    """What suits the schema that is asked for."""
    wanted = body["output_config"]["format"]["schema"]["properties"]
    return verdicts_by_word(body) if "verdicts" in wanted else label_from_examples(body)


class FakeClaude(Loopback):
    """`with FakeClaude() as claude: ...`, with ANTHROPIC_BASE_URL set to `claude.url`."""

    refuse_batches: Status | None = None
    """What comes of handing in a batch, instead of one."""

    def __init__(self, port: int = 0, latency: float = 0.0) -> None:
        self.answer: Callable[[dict[str, Any]], str] = any_answer
        self.script: deque[Fault | None] = deque()
        """What the next calls meet, in order of arrival; None is an answer."""
        self.chance: Callable[[str, int], Fault | None] = lambda prompt, time: None
        """Asked when the script is empty: a prompt, and how often it was asked before."""
        self.latency = latency
        self.counts_tokens = True
        self.polls = 1
        """How often a batch is asked about before it has ended."""
        self.lose_next_batch_answer = False
        self.paid: Counter[str] = Counter()
        """Prompt without its mark -> how often it was paid for."""
        self.asked: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.batches: dict[str, dict[str, Any]] = {}
        self.most_at_once = 0
        self._at_once = 0
        self._systems: set[str] = set()
        self.lock = threading.Lock()
        super().__init__(_handler(self), port=port, server=_Server)

    @property
    def paid_twice(self) -> dict[str, int]:
        return {prompt: times for prompt, times in self.paid.items() if times > 1}

    def take(self, body: dict[str, Any]) -> Fault:
        """What comes of one call; counted as paid when it is an answer."""
        prompt = MARK.sub("", body["messages"][0]["content"])
        with self.lock:
            fault = self.script.popleft() if self.script else self.chance(prompt, self.asked[prompt])
            self.asked[prompt] += 1
            self.bodies.append(body)
            self.times.append(time.monotonic())
        found = fault if fault is not None else Says(self.answer(body))
        if isinstance(found, Says) or (isinstance(found, Reset) and found.paid):
            with self.lock:
                self.paid[prompt] += 1
        return found

    def message(self, body: dict[str, Any], says: Says) -> dict[str, Any]:
        """A Message as the API returns it. The system prompt is written to the cache once and read after."""
        system = body["system"][0]["text"]
        with self.lock:
            known = system in self._systems
            self._systems.add(system)
        tokens = len(system) // 4
        return {
            "id": "msg_fake",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": says.text}],
            "stop_reason": says.stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": len(body["messages"][0]["content"]) // 4,
                "output_tokens": len(says.text) // 4 + 1,
                "cache_creation_input_tokens": 0 if known else tokens,
                "cache_read_input_tokens": tokens if known else 0,
            },
        }

    def entered(self, step: int) -> None:
        with self.lock:
            self._at_once += step
            self.most_at_once = max(self.most_at_once, self._at_once)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that were killed are no news."""


def _handler(claude: FakeClaude) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not (self.headers.get("x-api-key") or self.headers.get("Authorization")):
                self._error(UNKNOWN_KEY)
            elif self.path == "/v1/messages/count_tokens":
                self._count(body)
            elif self.path == "/v1/messages/batches":
                self._new_batch(body)
            elif wrong := _wrong(body):
                self._error(Status(400, "invalid_request_error", wrong))
            else:
                claude.entered(1)
                try:
                    time.sleep(claude.latency)
                    self._one(body)
                finally:
                    claude.entered(-1)

        def do_GET(self) -> None:
            _, _, rest = self.path.partition("/v1/messages/batches")
            name, _, what = rest.partition("?")[0].strip("/").partition("/")
            if not name:
                listed = [_shown(batch) for batch in reversed(claude.batches.values())]
                self._json({"data": listed, "has_more": False, "first_id": None, "last_id": None})
            elif what == "results":
                lines = "".join(json.dumps(row) + "\n" for row in claude.batches[name]["results"])
                self._send(200, lines.encode(), {"Content-Type": "application/x-jsonl"})
            else:
                batch = claude.batches[name]
                batch["polls"] -= 1
                self._json(_shown(batch))

        def log_message(self, *_: object) -> None:
            """Silence: tests read the account."""

        def _one(self, body: dict[str, Any]) -> None:
            found = claude.take(body)
            if isinstance(found, Says):
                self._json(claude.message(body, found))
            elif isinstance(found, Status):
                self._error(found)
            elif isinstance(found, Garbage):
                self._send(200, b"<html>gateway</html>", {"Content-Type": "application/json"})
            else:
                self._reset()

        def _count(self, body: dict[str, Any]) -> None:
            if claude.counts_tokens:
                self._json({"input_tokens": len(body["messages"][0]["content"]) // 4})
            else:
                self._error(Status(404, "not_found_error"))

        def _new_batch(self, body: dict[str, Any]) -> None:
            if claude.refuse_batches is not None:
                self._error(claude.refuse_batches)
                return
            names = [request["custom_id"] for request in body["requests"]]
            if len(set(names)) != len(names):
                self._error(Status(400, "invalid_request_error", "custom_id must be unique"))
                return
            results = [
                {"custom_id": one["custom_id"], "result": self._batched(one)} for one in body["requests"]
            ]
            random.Random(0).shuffle(results)
            identity = f"msgbatch_{len(claude.batches)}"
            claude.batches[identity] = {
                "id": identity,
                "url": f"{claude.url}/v1/messages/batches/{identity}",
                "polls": claude.polls,
                "results": results,
            }
            if claude.lose_next_batch_answer:
                claude.lose_next_batch_answer = False
                self._reset()
            else:
                self._json(_shown(claude.batches[identity]))

        def _batched(self, request: dict[str, Any]) -> dict[str, Any]:
            found = claude.take(request["params"])
            if isinstance(found, Says):
                return {"type": "succeeded", "message": claude.message(request["params"], found)}
            if isinstance(found, Batched) and found.kind == "errored":
                error = {"type": found.error, "message": "scripted"}
                return {"type": "errored", "error": {"type": "error", "error": error}}
            assert isinstance(found, Batched)
            return {"type": found.kind}

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

        def _error(self, status: Status) -> None:
            error: dict[str, Any] = {"type": status.type, "message": status.message}
            if status.error_code:
                error["details"] = {"error_code": status.error_code}
            body = json.dumps({"type": "error", "error": error}).encode()
            self._send(status.code, body, {"Content-Type": "application/json", **status.headers})

        def _json(self, tree: Any) -> None:
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _wrong(body: dict[str, Any]) -> str | None:
    """Why the API would refuse a request."""
    if {"temperature", "top_p", "top_k"} & set(body):
        return "temperature, top_p and top_k are not supported"
    if body["output_config"]["format"]["type"] != "json_schema":
        return "output_config.format.type"
    if body["system"][0]["cache_control"] != {"type": "ephemeral"}:
        return "system is not cached"
    return None


def _shown(batch: dict[str, Any]) -> dict[str, Any]:
    ended = batch["polls"] <= 0
    kinds = Counter(row["result"]["type"] for row in batch["results"]) if ended else Counter()
    counts = {kind: kinds[kind] for kind in ("succeeded", "errored", "expired", "canceled")}
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "id": batch["id"],
        "type": "message_batch",
        "processing_status": "ended" if ended else "in_progress",
        "request_counts": {**counts, "processing": 0 if ended else len(batch["results"])},
        "created_at": moment,
        "expires_at": moment,
        "ended_at": moment if ended else None,
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": f"{batch['url']}/results" if ended else None,
    }


def sometimes(share: float, seed: int = 0) -> Callable[[str, int], Fault | None]:
    """Faults of every kind for that share of calls."""
    chance = random.Random(seed)
    kinds: list[Fault] = [
        OVERLOADED,
        Status(500),
        Status(429, "rate_limit_error"),
        RATE_LIMITED,
        Reset(),
        Garbage(),
        Says("Here is what I think: cities."),
        Says('{"label": "half'),
        Says("", "refusal"),
        Says('{"pattern": "cut', "max_tokens"),
    ]
    return lambda prompt, time: chance.choice(kinds) if chance.random() < share else None


if __name__ == "__main__":
    with FakeClaude(int(sys.argv[1])) as served:
        served.chance = sometimes(float(sys.argv[2]))
        print(served.url, flush=True)
        sys.stdin.read()
        print(json.dumps({"paid": sum(served.paid.values()), "asked": sum(served.asked.values())}))
