"""What a person does on the live page, for tests and for the pictures in README."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from serving import Server


def open_live(page: Page, server: Server) -> None:
    page.goto(server.features_url)
    expect(page.get_by_label("Message")).to_be_enabled(timeout=300_000)
    expect(page.locator(".stream-state")).to_have_text("live")


def ask(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


def show_off(
    page: Page,
    server: Server,
    *,
    question: str = "Where is Paris, and what is it known for?",
    max_tokens: int = 100,
    pins: int = 3,
) -> None:
    """A finished answer on the page, the leading features pinned, the most surprising token of the answer pointed at.

    The answer is the likeliest one, so that a real model gives the same picture again.
    """
    open_live(page, server)
    page.get_by_text("Settings of the answer").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Most tokens").fill(str(max_tokens))
    page.get_by_text("Settings of the answer").click()
    ask(page, question)
    state = page.locator(
        ".answer-list [aria-current=true] .state"
    )  # of no answer until the new one has begun
    expect(state).to_have_text(re.compile("stop|length"), timeout=300_000)
    page.locator(".summary .pin-button").first.focus()
    for number in range(pins):
        page.locator(".summary .pin-button").nth(number).press("Enter")
    page.evaluate("""() => {
      const strength = (token) => Number(token.style.getPropertyValue("--t") || 0);
      const seen = document.querySelector(".scroller").getBoundingClientRect();
      const inSight = [...document.querySelectorAll(".answer-tokens .token")]
        .filter((token) => token.getBoundingClientRect().top > seen.top && token.textContent.trim().length > 2);
      const strongest = inSight.reduce((best, token) => (strength(token) > strength(best) ? token : best));
      strongest.focus();
    }""")
    expect(page.locator(".detail li:not([hidden]) .number").first).not_to_be_empty()
    page.locator(".scroller").evaluate("scroller => { scroller.scrollTop = 0; }")
