"""Makes docs/live-page.png, README's picture of the live page, as the browser tests fill it.

By hand, while `make demo` serves: PYTHONPATH=tests:tests/server .venv/bin/python tests/browser/take_picture.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from browser.conftest import find_browser
from browser.live_page import show_off
from playwright.sync_api import expect, sync_playwright

PICTURE = Path(__file__).parents[2] / "docs/live-page.png"


def main(features_url: str) -> None:
    server = SimpleNamespace(features_url=features_url)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 860}, device_scale_factor=1.5)
        expect.set_options(timeout=300_000)
        show_off(page, server, question="Why is the sky blue?", max_tokens=90)  # type: ignore[arg-type]
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8081"]))
