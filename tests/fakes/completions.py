"""An OpenAI-compatible service on loopback: it answers as it is told and remembers what it was asked."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from fakes.loopback import Loopback


class FakeCompletions(Loopback):
    """`with FakeCompletions(answer) as service: ...`; `script` holds (status, body, headers) that come first."""

    def __init__(self, answer: Callable[[dict[str, Any]], str]) -> None:
        self.answer = answer
        self.script: deque[tuple[int, Any, dict[str, str]]] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def completion(text: str | None, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion that says `text`."""
    return {
        "choices": [{"message": {"content": text, **message}, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 30},
        },
    }


def _handler(service: FakeCompletions) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.bodies.append(body)
            service.headers.append({name.lower(): value for name, value in self.headers.items()})
            service.paths.append(self.path)
            scripted = service.script.popleft() if service.script else None
            status, tree, headers = scripted or (200, completion(service.answer(body)), {})
            content = tree.encode() if isinstance(tree, str) else json.dumps(tree).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Silence: tests read `bodies`."""

    return Handler
