"""What all pages have in common: they open without a complaint, in both themes and at a phone's width."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.conftest import PHONE, Complaints
from playwright.sync_api import Page, expect
from serving import Server, serving

PATHS = ("/", "/features", "/feature/5", "/sessions", "/diff")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_opens_without_a_complaint_and_has_no_other_host(
    page: Page, known_server: Server, path: str
) -> None:
    response = page.goto(f"{known_server.features_url}{path}")
    assert response is not None
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    expect(page.get_by_role("status").first).to_contain_text("layer 7")
    expect(page.get_by_role("link", name="Features", exact=True)).to_be_visible()


@pytest.mark.parametrize("path", PATHS)
def test_nothing_sticks_out_at_a_phones_width(page: Page, known_server: Server, path: str) -> None:
    page.set_viewport_size(PHONE)
    page.goto(f"{known_server.features_url}{path}")
    expect(page.get_by_role("status").first).to_contain_text("layer 7")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_theme_is_the_systems_until_one_is_chosen(page: Page, known_server: Server) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(known_server.features_url)
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(back)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(back)
    assert dark != light
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    assert page.evaluate(back) == dark
    page.reload()
    assert page.evaluate(back) == dark


def test_another_page_cannot_be_put_in_a_path(known_server: Server) -> None:
    for path in (
        "/static/..%2flive.html",
        "/static/../live.html",
        "/static/%2e%2e/gate.py",
        "/static/nothing.js",
    ):
        assert known_server.get(path).status_code == 404, path


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("keyed-pages"), env={"NEUROSCOPE_API_KEY": "a-key"}) as running:
        running.wait_ready()
        yield running


def test_a_page_asks_for_the_key_that_the_server_wants(
    page: Page, keyed: Server, complaints: Complaints
) -> None:
    page.goto(keyed.features_url)
    page.get_by_label("Key").get_by_role("textbox").fill("wrong")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("That key was refused.")).to_be_visible()
    page.get_by_label("Key").get_by_role("textbox").fill("a-key")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("status").first).to_contain_text("layer 7")
    assert complaints, "the browser itself tells of every 401"
    complaints[:] = [c for c in complaints if "401" not in c]
