"""The pages in a real browser: the Chromium or Chrome of this machine, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from scripted_results import write_results
from serving import Server, serving

BROWSERS = (
    "chromium-headless-shell",  # the same engine without the browser around it: two thirds of the processor time
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


def find_browser() -> str:
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    pytest.fail(
        "The tests of the pages need Chromium or Chrome, and none is on the PATH. On Debian and Ubuntu: "
        "sudo apt-get install chromium. On macOS: brew install --cask chromium.",
        pytrace=False,
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one file: while it runs, this thread has an event loop, in which no other file's test could run its own."""
    executable = find_browser()
    with sync_playwright() as playwright:
        # Containers have neither user namespaces for Chromium's sandbox nor a large /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        with playwright.chromium.launch(executable_path=executable, args=arguments) as running:
            yield running


class Complaints(list[str]):
    """What the browser held against a page: exceptions, console errors, CSP violations, requests to other hosts."""


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport=WIDE, reduced_motion="reduce") as fresh:
        fresh.set_default_timeout(20_000)
        expect.set_options(timeout=20_000)
        yield fresh


@pytest.fixture
def complaints() -> Complaints:
    """A test that provokes one takes it out."""
    return Complaints()


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints) -> Iterator[Page]:
    """A tab; at its end nothing may have gone wrong in it."""
    tab = context.new_page()
    watch(tab, complaints)
    yield tab
    assert not complaints


def watch(tab: Page, complaints: Complaints) -> None:
    tab.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    tab.on("console", lambda m: complaints.append(f"console: {m.text}") if m.type == "error" else None)
    tab.on(
        "request",
        lambda r: (
            None
            if r.url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:"))
            else complaints.append(f"another host: {r.url}")
        ),
    )


@pytest.fixture(scope="session")
def known_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The scripted engine with whole results of 32 features (`scripted_results.py`), for tests that change nothing."""
    folder: Path = tmp_path_factory.mktemp("browser")
    write_results(folder / "results/tiny")
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}) as running:
        running.wait_ready()
        yield running
    assert "Traceback" not in running.output
