"""The page of one feature, against results one can compute (`scripted_results.py`), and against hostile ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from browser.conftest import PHONE, Complaints
from browser.page_checks import CONTRAST, HOSTILE, SHIFTS, refuse
from playwright.sync_api import Locator, Page, Route, expect
from serving import Server, serving


def opened(page: Page, server: Server, index: int | str) -> Page:
    page.goto(f"{server.features_url}/feature/{index}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    return page


def section(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def changed(page: Page, server: Server, index: int, **fields: Any) -> None:
    """Have the page get a feature whose fields are others."""
    answer = {**server.get(f"/v1/features/{index}?examples=all").json(), **fields}
    page.route(f"**/v1/features/{index}?*", lambda route: route.fulfill(json=answer))


def test_labels_come_with_their_sources_scores_and_what_those_mean(page: Page, known_server: Server) -> None:
    opened(page, known_server, 4)
    expect(page.get_by_role("heading", level=1)).to_have_text("an imported name")
    expect(page).to_have_title("an imported name · feature 4 · Neuroscope")
    labels = section(page, "Labels")
    expect(labels).to_contain_text("neuronpedia · gpt-4o-mini · oai_token-act-pair")
    expect(labels).to_contain_text("Not scored: how far to trust it is unknown.")
    expect(labels).to_contain_text("tokens · distinctive tokens · confidence high")
    expect(labels).to_contain_text("rule 0.54 (0.49 to 0.59)")
    expect(labels).to_contain_text("5 of 10 with it and 6 of 10 without were told.")
    expect(labels).to_contain_text("0.5 is chance, 1 is perfect")
    expect(labels.get_by_role("img")).to_have_accessible_name("0.54, from 0.49 to 0.59; chance is 0.5")
    expect(labels).to_contain_text("claude gave a label that was refused: it has 16 words (at most 15).")
    expect(page.get_by_role("link", name="on Neuronpedia")).to_have_attribute(
        "href", "https://www.neuronpedia.org/scripted-model/7-scripted/4"
    )


def test_firing_is_told_in_figures_and_drawn(page: Page, known_server: Server) -> None:
    """40 of 1,000 tokens, at 1 and 3 by turns."""
    opened(page, known_server, 4)
    expect(page.locator(".facts")).to_contain_text("4% of tokens (1 in 25)")
    firing = section(page, "How it fires")
    histogram, density = firing.get_by_role("img").all()
    expect(histogram).to_have_accessible_name(
        "Histogram of 40 firings by activation, from 0.5 to 0.707 to 2.83 to 4."
    )
    assert histogram.locator("rect title").all_text_contents() == [
        "1 to 1.41: 20 firings",
        "2.83 to 4: 20 firings",
    ]
    name = density.get_attribute("aria-label") or ""
    assert name.startswith("Histogram of the firing rates of 32 features. This one fires on 4% of tokens.")
    assert density.locator(".marker text").text_content() == "this one, 4%"
    bars = {
        title.split(":")[0]: float(bar.get_attribute("x") or 0)
        for bar, title in zip(
            density.locator("rect").all(), density.locator("rect title").all_text_contents(), strict=True
        )
    }
    at = float(density.locator(".marker line").get_attribute("x1") or 0)
    assert bars["3.16% to 5.62%"] < at < bars["5.62% to 10%"]
    table = firing.get_by_role("region", name="Firing by kind of text")
    rows = [row.all_text_contents() for row in [r.locator("th, td") for r in table.locator("tbody tr").all()]]
    assert rows == [
        ["all", "4%", "2", "1", "3", "40", "1,000"],
        ["chat", "8%", "2", "1", "3", "40", "500"],
    ]
    firing.get_by_text("As a table").first.click()
    expect(firing.get_by_role("cell", name="1 to 1.41")).to_be_visible()


def test_tokens_and_features_beside_it_are_told(page: Page, known_server: Server) -> None:
    opened(page, known_server, 4)
    tokens = section(page, "Tokens it promotes and suppresses").get_by_role("listitem")
    assert tokens.all_inner_texts() == ["·cat\n1.5", "·the\n-1"]
    others = section(page, "Features that fire with it").get_by_role("listitem")
    assert [text.split("\n") for text in others.all_inner_texts()] == [
        ["feature_30", "50%"],
        ["Straße in Köln", "25%"],
    ]
    others.get_by_role("link").nth(1).click()
    expect(page).to_have_url(f"{known_server.features_url}/feature/5")


def test_examples_stand_by_the_strength_of_their_activation(page: Page, known_server: Server) -> None:
    """9.5 and 4.25 lie above all firings of the histogram, 1.0 below them."""
    opened(page, known_server, 4)
    examples = section(page, "Examples")
    groups = examples.locator(".group")
    assert groups.locator("h3").all_text_contents() == ["The strongest 1% of firings", "The weakest quarter"]
    strongest = groups.first.locator(".measured b")
    assert strongest.all_text_contents() == ["9.5", "9.5", "9.5", "4.25", "4.25"]
    groups.first.get_by_role("button", name="1 more").click()
    assert strongest.count() == 6
    assert page.evaluate("document.activeElement.className") == "heat", "focus goes to what was added"
    examples.get_by_label("random").uncheck()
    examples.get_by_label("held out").uncheck()
    assert strongest.all_text_contents() == ["9.5", "4.25"]
    assert groups.first.locator("small").all_text_contents() == ["strongest · chat"] * 2


def test_a_token_that_is_an_example_of_two_kinds_stands_once(page: Page, known_server: Server) -> None:
    rows = known_server.get("/v1/features/4?examples=all&n=1").json()["examples"]
    changed(page, known_server, 4, examples=[{**row, "doc_id": "one", "position": 3} for row in rows])
    opened(page, known_server, 4)
    assert section(page, "Examples").locator("small").all_text_contents() == [
        "strongest, random, held out · chat"
    ]


def test_examples_are_coloured_by_the_model_as_they_come_into_view(page: Page, known_server: Server) -> None:
    """The scripted engine has feature 4 at 5.0 on the first token of three; the middle was measured at 9.5."""
    asked: list[Any] = []
    page.on("request", lambda r: asked.append(r.post_data_json) if r.url.count("/encode") else None)
    opened(page, known_server, 4)
    assert not asked
    line = section(page, "Examples").locator(".heat").first
    the, cat, sat = line.locator("span").all()
    assert cat.evaluate("e => [e.className, e.style.getPropertyValue('--share')]") == ["centre on", "100.0%"]
    line.scroll_into_view_if_needed()
    expect(the).to_have_class("on")
    share = the.evaluate("e => e.style.getPropertyValue('--share')")
    assert share == f"{100 * math.sqrt(5 / 9.5):.1f}%"
    expect(sat).not_to_have_class("on")
    assert {"token_ids": [0, 1, 2]} in asked
    assert len(asked) == len({json.dumps(body) for body in asked}), "a window is asked about once"


def test_values_are_told_on_hover_and_by_the_arrow_keys(page: Page, known_server: Server) -> None:
    opened(page, known_server, 4)
    line = section(page, "Examples").locator(".heat").first
    line.scroll_into_view_if_needed()
    expect(line.locator("span").first).to_have_class("on")
    tip = page.locator(".tip")
    line.locator("span").first.hover()
    expect(tip).to_have_text("·the 5")
    line.focus()
    expect(tip).to_have_text("·cat silent")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")  # there is no further one
    expect(tip).to_have_text("·sat silent")
    page.keyboard.press("Home")
    expect(tip).to_have_text("·the 5")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_any_text_can_be_tried(page: Page, known_server: Server) -> None:
    """Feature 4 is active at 5.0 on every eighth token."""
    opened(page, known_server, 4)
    tried = section(page, "Try a text")
    tried.get_by_label("Text", exact=True).fill("a b c d e f g h i j")
    page.keyboard.press("Control+Enter")
    expect(tried.get_by_role("status")).to_have_text("Fires on 2 of 10 tokens, most on “a”: 5.")
    assert tried.locator(".heat .on").all_text_contents() == ["a", " i"]
    tried.get_by_label("Text", exact=True).fill("word " * 400)
    tried.get_by_role("button").click()
    expect(tried.get_by_role("status")).to_contain_text("Fires on 50 of 400 tokens")


def test_a_text_that_is_refused_says_why(page: Page, known_server: Server, complaints: Complaints) -> None:
    opened(page, known_server, 4)
    tried = section(page, "Try a text")
    tried.get_by_label("Text", exact=True).fill("[die] now")
    page.route("**/encode?*", lambda route: refuse(route, 400, "invalid_prompt", "Too long by far."))
    tried.get_by_role("button").click()
    expect(tried.get_by_role("status")).to_have_text("Too long by far.")
    assert complaints
    complaints.clear()


def test_without_the_model_only_the_measured_tokens_are_coloured(
    page: Page, known_server: Server, complaints: Complaints
) -> None:
    page.route("**/encode?*", lambda route: refuse(route, 503, "engine_failed", "The model has failed."))
    opened(page, known_server, 4)
    examples = section(page, "Examples")
    examples.locator(".heat").first.scroll_into_view_if_needed()
    expect(examples.get_by_role("status")).to_have_text(
        "Only the framed tokens are coloured. The model has failed."
    )
    assert examples.locator(".heat").first.locator(".on").all_text_contents() == [" cat"]
    assert len(complaints) == 1, "it is not asked again and again"
    complaints.clear()


def test_a_full_queue_is_waited_for(page: Page, known_server: Server, complaints: Complaints) -> None:
    answers = iter([True])

    def busy(route: Route) -> None:
        if next(answers, False):
            refuse(route, 429, "queue_full", "Full.", {"Retry-After": "1"})
        else:
            route.continue_()

    page.route("**/encode?*", busy)
    opened(page, known_server, 4)
    line = section(page, "Examples").locator(".heat").first
    line.scroll_into_view_if_needed()
    expect(line.locator("span").first).to_have_class("on")
    assert len(complaints) == 1
    complaints.clear()


def test_it_shows_where_the_feature_fires_in_what_is_being_written(page: Page, known_server: Server) -> None:
    opened(page, known_server, 4)
    live = section(page, "In what is being written now")
    expect(live.get_by_role("status")).to_have_text("No answer is being written.")
    known_server.chat("one two three <b>four</b> five six seven eight nine")
    expect(live.get_by_role("status")).to_contain_text(": complete.")
    assert live.locator(".heat").text_content() == ("one two three <b>four</b> five six seven eight nine ■ ")
    assert live.locator(".heat .on").all_text_contents() == ["one", " nine"]


def test_a_tab_in_the_background_does_not_listen(page: Page, known_server: Server) -> None:
    """A browser has six connections to a server; each stream takes one."""
    opened(page, known_server, 4)
    status = section(page, "In what is being written now").get_by_role("status")
    expect(status).to_have_text("No answer is being written.")
    hide = "Object.defineProperty(document, 'visibilityState', {{ value: '{}', configurable: true }}); "
    turn = hide + "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(turn.format("hidden"))
    known_server.chat("unheard")
    page.evaluate(turn.format("visible"))
    expect(status).to_have_text("No answer is being written.")
    known_server.chat("heard")
    expect(page.locator(".live")).to_contain_text("heard")
    assert "unheard" not in page.locator(".live").inner_text()


def test_a_feature_that_never_fired_and_one_without_a_label_say_so(page: Page, known_server: Server) -> None:
    opened(page, known_server, 0)
    expect(page.locator(".facts")).to_contain_text("never")
    expect(section(page, "How it fires")).to_contain_text(
        "It never fired in the 1,000 tokens that were read."
    )
    expect(section(page, "How it fires")).to_contain_text(
        "1 of 32 features never fired, this one among them."
    )
    expect(section(page, "Examples")).to_contain_text("There are none: it never fired")
    assert page.get_by_role("link", name="← previous").count() == 0
    opened(page, known_server, 30)
    expect(section(page, "Labels")).to_contain_text("It has no label.")
    expect(section(page, "Labels")).to_contain_text("tokens was not asked: there are too few examples: 3 exa")
    page.get_by_role("link", name="next →").click()
    expect(page).to_have_url(f"{known_server.features_url}/feature/31")
    expect(page.get_by_text("next →")).to_be_visible()
    assert page.get_by_role("link", name="next →").count() == 0


@pytest.mark.parametrize("index", ["32", "999999999"])
def test_a_number_beyond_the_last_feature_is_told(
    page: Page, known_server: Server, complaints: Complaints, index: str
) -> None:
    opened(page, known_server, index)
    expect(page.get_by_text(f"There is no feature {index}; the SAE has 32, from 0 to 31.")).to_be_visible()
    page.get_by_role("link", name="All features").click()
    expect(page).to_have_url(f"{known_server.features_url}/features")
    assert all("404" in complaint for complaint in complaints)
    complaints.clear()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Without results."""
    with serving(tmp_path_factory.mktemp("bare"), env={"SCRIPTED_RESULTS": "1"}) as running:
        running.wait_ready()
        yield running


def test_without_results_the_page_says_what_is_missing_and_the_next_command(page: Page, bare: Server) -> None:
    opened(page, bare, 7)
    expect(page.get_by_role("heading", level=1)).to_have_text("feature_7")
    expect(page.locator(".notice").first).to_contain_text("snakemake --cores 4 labels")
    expect(section(page, "Labels")).to_contain_text("What is missing is said at the top of this page.")
    expect(section(page, "How it fires")).to_contain_text("Its activations were not measured here.")
    expect(section(page, "Examples")).to_contain_text("There are none here.")
    section(page, "Try a text").get_by_label("Text", exact=True).fill("a b c d")
    page.keyboard.press("Control+Enter")
    expect(section(page, "Try a text").get_by_role("status")).to_contain_text("Fires on 1 of 4 tokens")


def test_a_model_that_is_still_loading_is_waited_for(
    page: Page, known_server: Server, complaints: Complaints
) -> None:
    asked: list[int] = []

    def loading(route: Route) -> None:
        asked.append(1)
        if len(asked) == 1:
            refuse(route, 503, "loading", "The model is still loading (reading weights).")
        else:
            route.continue_()

    page.route("**/v1/features/4?*", loading)
    page.goto(f"{known_server.features_url}/feature/4")
    expect(page.get_by_text("The model is still loading (reading weights).")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("an imported name")
    assert complaints
    complaints.clear()


def test_hostile_texts_are_texts(page: Page, known_server: Server) -> None:
    page_of = known_server.get("/v1/features/4?examples=all").json()
    label = page_of["labels"][0]
    logit, example, neighbour = page_of["logits"][0], page_of["examples"][0], page_of["neighbours"][0]
    window = [1] * len(HOSTILE) + [None] * (25 - len(HOSTILE))
    changed(
        page,
        known_server,
        4,
        label=HOSTILE[0],
        labels=[{**label, "label": text or "∅", "source": text or "s"} for text in HOSTILE],
        logits=[{**logit, "token": text} for text in HOSTILE],
        neighbours=[{**neighbour, "label": text or "∅"} for text in HOSTILE],
        states=[{"source": HOSTILE[0], "state": "failed", "reason": HOSTILE[3]}],
        examples=[{**example, "tokens": HOSTILE, "window": window, "stratum": HOSTILE[0]}] * 3,
        degraded=[HOSTILE[0]],
    )
    page.set_viewport_size(PHONE)
    opened(page, known_server, 4)
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[0])
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    tokens = section(page, "Examples").locator(".heat").first.locator("span").all_text_contents()
    assert tokens[1] == "⍰right to left⍰ שלום"
    assert tokens[2:4] == ["⟨200B⟩", "a↵b␍⇥c␀d␛[31m"]
    assert tokens[5:] == ["⟨FEFF⟩", ""]
    assert section(page, "Tokens it promotes and suppresses").locator("code").last.inner_text() == "∅"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_every_ground_can_be_read(page: Page, known_server: Server, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    opened(page, known_server, 4)
    cell = section(page, "Examples").locator(".heat .on").first
    for share in ("8%", "40%", "70%", "100%"):
        cell.evaluate("(e, share) => e.style.setProperty('--share', share)", share)
        assert cell.evaluate(CONTRAST) >= 4.5, share
    assert page.locator(".quiet").first.evaluate(CONTRAST) >= 4.5
    assert page.get_by_role("link", name="on Neuronpedia").evaluate(CONTRAST) >= 4.5
    grounds = cell.evaluate(
        "e => ['8%', '100%'].map((s) => (e.style.setProperty('--share', s), getComputedStyle(e).backgroundColor))"
    )
    assert grounds[0] != grounds[1], "the ground is drawn at all"


@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
def test_nothing_moves_as_what_was_asked_for_arrives(
    page: Page, known_server: Server, size: dict[str, int]
) -> None:
    page.set_viewport_size(size)  # type: ignore[arg-type]
    page.add_init_script(SHIFTS)
    opened(page, known_server, 4)
    section(page, "Try a text").get_by_label("Text", exact=True).fill("a b c d e f g h i j " * 8)
    section(page, "Try a text").get_by_role("button").click()
    expect(section(page, "Try a text").get_by_role("status")).to_contain_text("Fires on")
    known_server.chat("one two three four five six seven eight nine ten " * 3)
    expect(page.locator(".live + p")).to_contain_text("complete")
    line = section(page, "Examples").locator(".heat").first
    line.scroll_into_view_if_needed()
    expect(line.locator("span").first).to_have_class("on")
    assert sum(page.evaluate("window.shifts")) < 0.01
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
