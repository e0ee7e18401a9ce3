"""The token view by itself, fed with tokens that no scripted engine would say."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from serving import Server

HOSTILE = ["<img src=x onerror=alert(1)>", "\u202eleft", "\u200b", "a\nb\tc", "x" * 10_000, "</script><b>"]

MAKE = """async (options) => {
  const { createView } = await import("/static/view.js");
  const { createCompletion } = await import("/static/completion.js");
  const place = document.getElementById("main");
  place.replaceChildren();
  const stage = place.appendChild(document.createElement("div"));
  window.completion = createCompletion("made");
  window.watched = [];
  window.view = createView(stage, { onwatch: (indices) => window.watched.push(indices), ...options });
  window.view.show(window.completion);
  window.feed = (token) => {
    const n = window.completion.tokens.length;
    const whole = { place: "answer", index: n, position: n, token_id: n, content: true, l0: 2, fvu: 0.1,
      filtered_count: 0, others: null, whole: false, features: [], ...token };
    window.completion.tokens.push(whole);
    window.view.append(whole);
    return whole;
  };
}"""


def feature(
    index: int, activation: float, surprise: float | None, label: str | None = None
) -> dict[str, Any]:
    return {
        "index": index,
        "label": label or f"feature {index}",
        "activation": activation,
        "surprise": surprise,
    }


@pytest.fixture
def view(page: Page, known_server: Server) -> Page:
    page.goto(
        f"{known_server.features_url}/diff"
    )  # a page that does nothing by itself, with the view's style
    page.evaluate("""async () => {
      for (const name of ["view", "live"]) {
        const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: `/static/${name}.css` });
        const loaded = new Promise((resolve) => sheet.addEventListener("load", resolve));
        document.head.append(sheet);
        await loaded;
      }
    }""")
    page.evaluate(MAKE, {})
    return page


def test_labels_and_tokens_of_any_kind_are_text(view: Page) -> None:
    for n, text in enumerate(HOSTILE):
        view.evaluate("token => window.feed(token)", {"token": text, "features": [feature(n, 1, 2, text)]})
        view.evaluate("([n, text]) => window.view.pin(n, text)", [n, text])
    view.evaluate("() => window.view.finish('stop')")
    assert view.locator(".answer-tokens").evaluate("row => row.textContent") == "".join(HOSTILE)
    expect(view.locator(".lane")).to_have_count(6)
    assert view.locator("#main img, #main b:not(.number)").count() == 0
    first = view.locator(".summary li").first.locator(".feature-name")
    assert first.evaluate("name => name.textContent") == HOSTILE[0]
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_was_not_told_is_not_drawn_as_zero(view: Page) -> None:
    view.evaluate("() => window.view.pin(7, 'seven')")
    view.evaluate("token => window.feed(token)", {"token": "a", "features": [feature(7, 3, None)]})
    view.evaluate("token => window.feed(token)", {"token": "b", "features": [feature(8, 3, None)]})
    view.evaluate("token => window.feed(token)", {"token": "c", "features": [], "l0": 0, "whole": True})
    drawn = "paths => paths.map((path) => path.getAttribute('d')).join('')"
    lane = view.locator(".lane-plot")
    expect(lane).to_have_attribute("aria-label", "seven over 3 tokens; largest 3, at “a”")
    assert lane.locator(".bars path").evaluate_all(drawn) == "M0 0v3h1v-3z"
    assert lane.locator(".untold path").evaluate_all(drawn) == "M1 100v-8h1v8z"
    assert view.evaluate("window.watched") == [[7]]
    view.evaluate("""() => {
      window.completion.tokens[1].others = new Map([[7, 0]]);
      window.view.told(window.completion.tokens[1]);
    }""")
    expect(lane.locator(".untold path")).to_have_attribute("d", "")
    assert "summed activation" in view.locator(".summary").inner_text(), "no surprise is known here"


def test_two_thousand_tokens_stay_smooth(view: Page) -> None:
    times = view.evaluate("""async () => {
      for (const n of [1, 2, 3]) window.view.pin(n, `feature ${n}`);
      const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
      const times = [];
      for (let n = 0; n < 2000; n += 1) {
        const features = Array.from({ length: 10 }, (_, k) => {
          const index = k < 3 ? k + 1 : (n * 7 + k * 131) % 4096;
          return { index, label: `feature ${index}`, activation: 10 - k, surprise: (n * k) % 7 };
        });
        const begun = performance.now();
        window.feed({ token: n % 90 === 89 ? ".\\n" : ` word${n}`, features });
        const fed = performance.now() - begun;
        if (n % 10 !== 9) { times.push(fed); continue; }
        await frame();
        const drawing = performance.now();
        document.querySelector(".scroller").offsetHeight;
        times.push(fed + performance.now() - drawing);
      }
      return times;
    }""")
    early, late = sorted(times[100:600])[250], sorted(times[1500:])[250]
    print(f"ms a token: {early:.3f} of the first 600, {late:.3f} of the last 500, at most {max(times):.1f}")
    assert late < 4 * early + 0.5, "the cost of a token must not grow with the answer"
    expect(view.locator(".token")).to_have_count(2000)
    assert view.locator(".lane-plot path").count() == 3 * 2 * 32, "pieces of 64 tokens"


CONTRASTS = """() => {
  const canvas = new OffscreenCanvas(1, 1);
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const over = (layers) => {
    brush.globalAlpha = 1;
    brush.fillStyle = "#fff";
    brush.fillRect(0, 0, 1, 1);
    for (const [colour, alpha] of layers) {
      brush.globalAlpha = alpha;
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 1, 1);
    }
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("option, :disabled, noscript")) continue;
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.unshift([getComputedStyle(at).backgroundColor, 1]);
      // The bar begins after the buttons.
      const bar = element.closest(".feature-buttons") ? null : at.querySelector(":scope > .bar-of")
      if (!bar) continue;
      const { backgroundColor, opacity } = getComputedStyle(bar, "::before");
      layers.splice(1, 0, [backgroundColor, Number(opacity)]);
    }
    const back = over(layers);
    const front = over([...layers, [getComputedStyle(element).color, 1]]);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push([element.className || element.tagName, walker.currentNode.data, ratio.toFixed(2)]);
  }
  return found;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read(view: Page, theme: Any) -> None:
    view.emulate_media(color_scheme=theme)
    view.evaluate(
        "token => window.feed(token)", {"token": "a", "features": [feature(1, 9, 8), feature(2, 4, 2)]}
    )
    view.evaluate(
        "token => window.feed(token)", {"token": "role", "content": False, "features": [feature(1, 9, 8)]}
    )
    view.evaluate(
        "() => { window.view.missed({ after: 1, missed: 3 }); window.view.tail('more'); window.view.pin(1, 'one'); }"
    )
    view.evaluate("() => window.view.finish('cancelled')")
    view.locator(".token").first.hover()
    expect(view.locator(".detail")).to_contain_text("token 1 of the answer")
    assert view.locator(".token").first.evaluate("el => getComputedStyle(el).backgroundColor") not in (
        "rgba(0, 0, 0, 0)",
        "",
    )
    assert view.evaluate(CONTRASTS) == []
