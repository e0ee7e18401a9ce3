"""Any service that speaks OpenAI's chat completions: a server of one's own (vLLM, llama.cpp, Ollama) or a rented one.

The key, where one is needed, is read from an environment variable. Redirects are not followed: they would carry the
key to another address.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import IO, Any

from neuroscope.autointerp.calls.ask import Ask, Fault, Reply, StopRun, Usage, key_in, seconds_to_wait

TIMEOUT_SECONDS = 300.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


class ChatCompletions:
    """A model behind `base_url`, such as http://127.0.0.1:8000/v1."""

    def __init__(
        self, model: str, base_url: str, *, key_variable: str, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self.model = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._variable, self._timeout, self._key = key_variable, timeout, key_in(key_variable)
        self._opener = urllib.request.build_opener(_NoRedirect)

    def close(self) -> None:
        """Each call has a connection of its own."""

    def max_tokens(self, ask: Ask) -> int:
        return ask.max_tokens

    def count(self, ask: Ask) -> int | None:
        return None

    def ask(self, ask: Ask) -> Reply:
        body = {
            "model": self.model,
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "messages": [
                {"role": "system", "content": ask.system},
                {"role": "user", "content": ask.user},
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": ask.purpose, "schema": dict(ask.schema), "strict": True},
            },
        }
        request = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers(), method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return _reply(json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                raise self._told(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise Fault(f"no connection ({type(error).__name__})") from error
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Fault(f"an answer that is no chat completion ({type(error).__name__})") from error

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _told(self, error: urllib.error.HTTPError) -> Fault | StopRun:
        status, words = error.code, _words(error, self._key)
        remedies = {
            401: f"Set {self._variable} to a key that {self._url} accepts",
            402: "Add credit to the account",
            403: f"Use a key that may ask {self.model}",
            404: f"Set labels.base_url and labels.model to what the service has; asked was {self._url}",
        }
        spent = "insufficient_quota" in words or "billing" in words
        if spent or status in remedies:
            remedy = remedies[402] if spent else remedies[status]
            return StopRun(
                f"The service refuses every call (status {status}: {words}). {remedy}, then run this again: every "
                "answer so far is kept."
            )
        return Fault(
            f"status {status}: {words}",
            retryable=status in (408, 409, 429) or status >= 500,
            retry_after=seconds_to_wait({name.lower(): value for name, value in error.headers.items()}),
        )


def _words(error: urllib.error.HTTPError, key: str | None) -> str:
    """What the service says, in short and without the key."""
    try:
        text = error.read(2_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return "no words"
    return " ".join(text.replace(key or "\0", "...").split())[:200] or "no words"


def _reply(answer: Any) -> Reply:
    choice, used = answer["choices"][0], answer.get("usage") or {}
    cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    usage = Usage(
        input=max(0, (used.get("prompt_tokens") or 0) - cached),
        output=used.get("completion_tokens") or 0,
        cache_read=cached,
    )
    message, reason = choice["message"], choice.get("finish_reason")
    if reason == "content_filter" or message.get("refusal"):
        return Reply(message.get("refusal") or "", usage, "refused")
    text = message.get("content") or ""
    return Reply(text, usage, "truncated" if reason == "length" else "end")
