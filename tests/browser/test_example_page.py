"""examples/watch.html as people open it: from a server of their own, which this one allows."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from scripted_results import write_results
from serving import ROOT, Server, free_ports, serving, wait_until

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def page_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, page_port: int) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("example-page")
    write_results(folder / "results/tiny")
    allowed = {"allowed_origins": [f"http://127.0.0.1:{page_port}"]}
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}, serve=allowed) as running:
        running.wait_ready()
        yield running


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_the_page_shows_what_comes(page: Page, server: Server, page_port: int) -> None:
    serve = functools.partial(Quiet, directory=str(EXAMPLES))
    with http.server.ThreadingHTTPServer(("127.0.0.1", page_port), serve) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{page_port}/watch.html?{server.features_url}")
        expect(page.locator("#state")).to_have_text("Ask the model something, from anywhere.")
        wait_until(lambda: server.get("/readyz").json()["subscribers"], what="the page's subscription")
        server.chat("one <b>two</b>")
        expect(page.locator("#tokens li").first).to_contain_text(
            "label of 3 9.0, an imported name 5.0, label of 20 2.5"
        )
        expect(page.locator("#tokens li").nth(1)).to_contain_text("<b>two</b>")
        expect(page.locator("#state")).to_have_text("2 tokens, ended by stop.")
        files.shutdown()
