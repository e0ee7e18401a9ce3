"""Recordings for the tests of the pages, the session routes answered out of a dictionary, and the replay's parts."""

from __future__ import annotations

import json
import re
from typing import Any

from made_recordings import document
from playwright.sync_api import Page, Route, expect
from serving import Server

from neuroscope.diff import compare, side_of
from neuroscope.ranking import Ranking
from neuroscope.recording import check_recording

HOSTILE = "<img src=x onerror=alert(1)>\u202e</script><!--"
ANSWER = [(f" w{n}", {3: 9.0, 4 + n % 8: (5.0, 3.0), 20 + n % 8: (2.5, 0.5)}) for n in range(12)]
PROMPT = [("<user>", {3: 9.0}), ("Where", {3: 9.0, 9: (4.0, 2.0)})]


def recorded(number: int, answer: Any = ANSWER, prompt: Any = PROMPT, **changes: Any) -> dict[str, Any]:
    """Named by its number, which is also its age."""
    told = {
        "id": f"20260131t09000{number}-0123abcd",
        "title": f"Question {number}",
        "created_at": f"2026-01-31T09:00:0{number}Z",
    }
    return document(answer, prompt, **{**told, **changes})


class Kept:
    """What the page finds when it asks for sessions: those given, without a server's disk."""

    def __init__(self, page: Page, *recordings: dict[str, Any]) -> None:
        self.documents = {r["id"]: r for r in recordings}
        self.deleted: list[str] = []
        self.compared: list[dict[str, Any]] = []
        page.route(re.compile(r"/v1/sessions"), self._answer)
        page.route("**/v1/diff", self._compare)

    def _answer(self, route: Route) -> None:
        name = route.request.url.partition("/v1/sessions")[2].partition("?")[0].strip("/")
        if route.request.method == "DELETE":
            self.deleted.append(name)
            del self.documents[name]
            route.fulfill(json={"id": name, "deleted": True, "notes": []})
        elif not name:
            route.fulfill(
                json={"total": len(self.documents), "offset": 0, "limit": 500, "sessions": self._rows()}
            )
        elif name.endswith(".html"):
            route.fulfill(body=f"<!doctype html>{name}", content_type="text/html")
        elif name in self.documents:
            route.fulfill(json=self.documents[name])
        else:
            message = f"There is no session {name}. List them with `neuroscope session list`."
            route.fulfill(status=404, json={"error": {"message": message, "code": "session_not_found"}})

    def _rows(self) -> list[dict[str, Any]]:
        names = ("id", "created_at", "title", "model", "pairing", "layer", "total_tokens", "completion_id")
        rows = [
            {**{name: made[name] for name in names}, "bytes": 2500, "error": None}
            for made in self.documents.values()
        ]
        return sorted(rows, key=lambda row: row["created_at"], reverse=True)

    def _compare(self, route: Route) -> None:
        asked = json.loads(route.request.post_data or "")
        self.compared.append(asked)
        a, b = (side_of(check_recording(self._given(asked[name]), of=name)) for name in ("a", "b"))
        ranking = Ranking(
            asked["filter"], asked.get("threshold", 0.5), asked["top_k"], asked["min_activation"]
        )
        route.fulfill(json=compare(a, b, ranking))

    def _given(self, side: dict[str, Any]) -> Any:
        return self.documents[side["session"]] if "session" in side else side["recording"]


TOKENS = ".answer-tokens .token"


def open_session(page: Page, server: Server, *given: Any, **changes: Any) -> None:
    """The replay of `recorded(1, *given)`."""
    made = recorded(1, *given, **changes)
    Kept(page, made)
    page.goto(f"{server.features_url}/session/{made['id']}")
    expect(page.get_by_role("slider")).to_be_visible()


def expect_features(page: Page, labels: list[str]) -> None:
    """Those shown for the token that is pointed at, or the newest."""
    region = page.get_by_role("region", name="Token", exact=True)
    expect(region.locator("li:not([hidden]) .feature-name")).to_have_text(labels)
