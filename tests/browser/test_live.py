"""The live page, with the scripted engine: token n of an answer has feature 4 + n % 8 at 5.0 (z +3), feature 20 + n % 8
at 2.5 (z +0.5), and feature 3, which fires on every token and is filtered out, at 9.0 (z +7). L0 is 3, FVU 0.125.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import PHONE, Complaints, watch
from browser.live_page import ask, open_live, show_off
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect
from serving import Server, http, launch, serving, wait_until
from tiny_pairing import pairing

SHIFTS = """() => {
  window.shifts = [];
  const name = (source) => source.node?.className || source.node?.parentElement?.className || source.node?.nodeName;
  const note = (entry) => window.shifts.push([entry.value, ...entry.sources.map(name)]);
  new PerformanceObserver((list) => list.getEntries().forEach(note))
    .observe({ type: "layout-shift", buffered: false });
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("live"), serve={"heartbeat_s": 0.5}) as running:
        yield running


def answered(page: Page, tokens: int) -> None:
    """The answer that is shown has come to its end, with so many tokens, that of the end among them."""
    expect(page.locator(".answer-list [aria-current=true] .state")).to_have_text(
        re.compile(f"^{tokens} tokens, stop")
    )


def token(page: Page, number: int) -> Locator:
    return page.locator(".answer-tokens .token").nth(number)


def rows(panel: Locator) -> list[list[str]]:
    """Label and figures of each row that is shown."""
    shown: list[list[str]] = panel.locator("li:not([hidden])").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('.feature-name, .number')].map(cell => cell.textContent))"
    )
    return shown


def test_an_answer_comes_token_by_token_with_its_features(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "[delay=0.01] one two\nthree")
    answered(page, 4)
    expect(page.locator(".answer-tokens")).to_have_text("one two\nthree", use_inner_text=False)
    assert page.locator(".answer-tokens").evaluate("row => row.textContent") == " one two\nthree"
    detail = page.locator(".detail")
    token(page, 1).hover()
    expect(detail).to_contain_text("token 2 of the answer · id 1001 · L0 3 · FVU 0.13 · 1 filtered out")
    expect(detail.locator("li:not([hidden]) .number").nth(3)).to_have_text(
        "–"
    )  # the labels have no scores here
    assert rows(detail) == [["label of 5", "–", "5", "+3"], ["label of 21", "–", "2.5", "+0.5"]]
    assert detail.get_by_role("link", name="label of 5").get_attribute("href") == "/feature/5"
    expect(page.locator(".meters")).to_have_text("L0 3 mean 3FVU 0.13 mean 0.13")


def test_what_it_is_thinking_about_is_the_sum_of_surprise(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, " ".join(f"w{n}" for n in range(9)))
    answered(page, 10)
    shown = rows(page.get_by_role("region", name="What it is thinking about"))
    # Ten tokens: those of places 0, 1, 8 and 9 share features 4 and 5, each twice at z 3.
    assert shown[:3] == [["label of 4", "2", "6"], ["label of 5", "2", "6"], ["label of 6", "1", "3"]]


def test_nothing_moves_while_an_answer_comes(page: Page, server: Server) -> None:
    open_live(page, server)
    script = "[delay=0.03] " + "some words of an answer\n" * 25
    body = {"messages": [{"role": "user", "content": script}], "stream": True}
    with http.stream("POST", f"{server.chat_url}/v1/chat/completions", json=body) as answer:
        expect(token(page, 0)).to_be_visible()
        page.evaluate(SHIFTS)  # another client's: after an input of the page's user, shifts would not count
        answer.read()
    expect(page.locator(".answer-tokens .token")).to_have_count(126)
    page.wait_for_timeout(100)
    assert page.evaluate("window.shifts") == []
    assert page.locator(".scroller").evaluate("s => s.scrollHeight - s.scrollTop - s.clientHeight") < 4


def test_tokens_are_walked_with_the_keys(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "zero one two\nthree four\nfive")
    answered(page, 7)
    page.get_by_role("listbox").locator("[tabindex='0']").focus()
    detail = page.locator(".detail")
    for key, place in [
        ("ArrowRight", 2),
        ("ArrowDown", 5),
        ("ArrowUp", 2),
        ("End", 7),
        ("Home", 1),
        ("ArrowLeft", 1),
    ]:
        page.keyboard.press(key)
        expect(detail).to_contain_text(f"token {place} of the answer")
    assert page.locator(".tokens [aria-selected]").count() == 1
    page.keyboard.press("Enter")
    expect(detail.get_by_role("button", name="Tint the tokens by label of 4")).to_be_focused()
    page.keyboard.press("Escape")
    expect(token(page, 0)).to_be_focused()
    page.keyboard.press("Escape")
    expect(detail).to_contain_text("Newest token")
    assert page.locator(".tokens [aria-selected]").count() == 0


def test_rows_stand_still_while_somebody_aims_at_one(page: Page, server: Server) -> None:
    def shown(panel: Locator) -> list[list[str]]:
        return [[row[0], row[-1]] for row in rows(panel)]  # a score may come as it is looked at

    def goes_on(panel: Locator, still: list[list[str]]) -> bool:
        return shown(panel) != still

    open_live(page, server)
    ask(page, "[delay=0.1] " + "word " * 200)
    expect(token(page, 9)).to_be_visible()
    for panel in (page.locator(".detail"), page.get_by_role("region", name="What it is thinking about")):
        box = panel.locator("li").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 60, box["y"] + 5)
        aimed, before = shown(panel), page.locator(".answer-tokens .token").count()
        for step in range(8):
            page.wait_for_timeout(100)
            page.mouse.move(box["x"] + 60 + step, box["y"] + 5)
            assert shown(panel) == aimed
        assert page.locator(".answer-tokens .token").count() > before, "the answer goes on"
        label = aimed[0][0]
        panel.get_by_role("button", name=f"Pin {label}", exact=True).click()
        expect(page.get_by_role("img", name=re.compile(f"^{label} over"))).to_be_visible()
        expect(panel.get_by_role("button", name=f"Unpin {label}", exact=True)).to_be_visible()
        page.mouse.move(5, 5)
        wait_until(partial(goes_on, panel, aimed), seconds=20, what="news in the rows")
    page.get_by_role("button", name="Stop", exact=True).click()


def test_a_pinned_feature_is_known_where_the_filter_hides_it(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, " ".join(f"w{n}" for n in range(16)))
    answered(page, 17)
    page.evaluate("document.querySelector('.summary .pin-button').click()")  # label of 4: on 0, 8 and 16
    lane = page.get_by_role("img", name=re.compile("^label of 4 over"))
    expect(lane).to_have_attribute("aria-label", "label of 4 over 17 tokens; largest 5, at “w0”")
    heights = lane.locator(".bars path").evaluate_all("paths => paths.map(p => p.getAttribute('d')).join('')")
    assert re.findall(r"M(\d+) 0v([\d.]+)", heights) == [("0", "5"), ("8", "5"), ("16", "5")]
    choose_filter(page, "none")
    expect(page.locator(".detail")).to_contain_text("label of 3")
    page.get_by_role("button", name="Pin label of 3").last.click()
    choose_filter(page, "frequency")
    expect(page.locator(".detail")).not_to_contain_text("label of 3")
    always = page.get_by_role("img", name=re.compile("^label of 3 over"))
    expect(always).to_have_attribute("aria-label", re.compile("^label of 3 over 17 tokens; largest 9"))
    assert (
        always.locator(".untold path").evaluate_all("paths => paths.map(p => p.getAttribute('d')).join('')")
        == ""
    )
    ask(page, "and again")
    answered(page, 3)
    expect(always).to_have_attribute("aria-label", "label of 3 over 3 tokens; largest 9, at “and”")


def choose_filter(page: Page, name: str) -> None:
    details = page.locator("details.controls")
    details.evaluate("details => { details.open = true; }")
    details.get_by_label("Filter").select_option(name)
    details.evaluate("details => { details.open = false; }")


def test_the_tokens_are_tinted_by_surprise_or_by_one_feature(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "a b c")
    answered(page, 4)
    tint = "el => getComputedStyle(el).backgroundColor"
    strong = token(page, 0).evaluate(tint)
    assert strong == token(page, 1).evaluate(tint) != "rgba(0, 0, 0, 0)"
    page.get_by_role("button", name="Tint the tokens by label of 5").first.click()
    expect(token(page, 0)).not_to_have_attribute("style", re.compile("--t:"))
    expect(token(page, 1)).to_have_attribute("style", re.compile("--t: 5"))
    expect(page.get_by_label("Tint the tokens by", exact=True)).to_have_value("feature")
    page.get_by_label("Tint the tokens by", exact=True).select_option("none")
    expect(token(page, 1)).not_to_have_attribute("style", re.compile("--t:"))


def test_an_answer_to_another_client_is_followed_by_its_id(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "mine")
    answered(page, 2)
    whole = server.chat("of another program").json()
    row = page.locator(".answer-list li").last
    expect(row).to_contain_text(whole["id"])
    expect(row).to_contain_text("another client")
    expect(row).to_contain_text("of another program")
    expect(page.locator(".other")).to_have_text(re.compile(whole["id"]))
    expect(page.locator(".answer-tokens")).to_have_text("of another program")
    page.get_by_role("button", name="back to the conversation").click()
    expect(page.locator(".asked")).to_have_text("You: mine")
    expect(page.locator(".answer-tokens")).to_have_text("mine")
    page.get_by_label("show new ones as they begin").uncheck()
    server.chat("not shown by itself")
    expect(page.locator(".answer-list li").last).to_contain_text("not shown by itself")
    expect(page.locator(".answer-tokens")).to_have_text("mine")


def test_answers_from_before_the_page_are_in_the_list(page: Page, server: Server) -> None:
    earlier = server.chat("long before").json()["id"]
    open_live(page, server)
    row = page.locator(".answer-list li", has_text=earlier)
    expect(row).to_contain_text("earlier")
    row.get_by_role("button").click()
    expect(page.locator(".answer-tokens")).to_have_text("long before")


def test_an_answer_that_is_being_written_when_the_page_opens_is_shown(page: Page, server: Server) -> None:
    words = "goes on " * 100
    body = {"messages": [{"role": "user", "content": f"[delay=0.4] {words}"}], "stream": True}
    with http.stream("POST", f"{server.chat_url}/v1/chat/completions", json=body) as answer:
        lines = (
            line for line in answer.iter_lines() if "goes" in line
        )  # kept: its end would be the answer's
        next(lines)
        open_live(page, server)
        expect(token(page, 3)).to_be_visible()
    expect(page.locator(".end")).to_have_text("The answer was stopped.")
    shown = page.locator(".answer-tokens").evaluate("row => row.textContent.trim()")
    assert words.startswith(shown)


def test_a_tab_in_the_background_gives_its_connection_back_and_misses_nothing(
    page: Page, server: Server
) -> None:
    def look(state: str) -> None:
        page.evaluate(
            """(state) => {
          Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
            state,
        )

    def listeners() -> int:
        return int(server.get("/readyz").json()["subscribers"])

    open_live(page, server)
    wait_until(lambda: listeners() == 1, what="a reader")
    look("hidden")
    wait_until(lambda: listeners() == 0, what="a connection given back")
    meanwhile = server.chat("said while nobody looks").json()["id"]
    look("visible")
    expect(page.locator(".answer-list li", has_text=meanwhile)).to_contain_text("5 tokens, stop")
    expect(page.locator(".answer-tokens")).to_have_text("said while nobody looks")
    expect(page.locator(".stream-notice")).to_be_empty()
    wait_until(lambda: listeners() == 1, what="a reader again")


def test_settings_act_on_one_tab_only(
    page: Page, context: BrowserContext, server: Server, complaints: Complaints
) -> None:
    other = context.new_page()
    watch(other, complaints)
    for tab in (page, other):
        open_live(tab, server)
    with page.expect_response(re.compile(r"/v1/features/stream\?.*filter=none")):
        choose_filter(page, "none")
    server.chat("seen twice")
    for tab, first in ((page, "label of 3"), (other, "label of 4")):
        expect(tab.locator(".answer-tokens")).to_have_text("seen twice")
        token(tab, 0).hover()
        assert rows(tab.locator(".detail"))[0][0] == first
    page.locator("details.controls").evaluate("details => { details.open = true; }")
    page.get_by_label("top", exact=True).fill("1")
    expect(page.locator(".detail li:not([hidden])")).to_have_count(1)
    assert server.get("/readyz").json()["ranking"] == {"filter": "frequency", "threshold": 0.5, "top_k": 10}


def test_a_conversation_has_turns_and_the_settings_of_its_answers(page: Page, server: Server) -> None:
    bodies: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda r: (
            bodies.append(json.loads(r.post_data or "")) if r.url.endswith("/chat/completions") else None
        ),
    )
    open_live(page, server)
    ask(page, "one")
    answered(page, 2)
    page.get_by_text("Settings of the answer").click()
    page.get_by_label("System prompt").fill("Be short.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Most tokens").fill("2")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Message").fill("two and")
    page.get_by_label("Message").press("Shift+Enter")
    page.get_by_label("Message").press_sequentially("three")
    page.get_by_label("Message").press("Enter")
    expect(page.locator(".end")).to_have_text("The answer ended at its longest length.")
    assert bodies[0] == {
        "messages": [{"role": "user", "content": "one"}],
        "stream": True,
        "neuroscope": {"prompt_features": False},
    }
    assert bodies[1] == {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "one"},
            {"role": "user", "content": "two and\nthree"},
        ],
        "neuroscope": {"prompt_features": False},
        "temperature": 0.5,
        "max_tokens": 2,
        "seed": 7,
        "stream": True,
    }
    expect(page.locator(".said bdi")).to_have_text("one")
    page.get_by_role("button", name="show its features").click()
    expect(page.locator(".answer-tokens")).to_have_text("one")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".asked")).to_have_count(0)


def test_an_answer_is_stopped(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "[delay=0.1] " + "word " * 200)
    expect(token(page, 2)).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".end")).to_have_text("The answer was stopped.")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_an_answer_stopped_before_its_first_token_cannot_be_saved(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "[prefill=20] never begins")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".answer-list li").last).to_contain_text("0 tokens, cancelled")
    expect(page.locator(".end")).to_have_text("The answer was stopped.")
    expect(page.get_by_role("button", name="Save")).to_be_hidden()
    ask(page, "does")
    expect(page.get_by_role("button", name="Save")).to_be_visible()


def test_a_setting_that_is_wrong_is_seen_when_it_keeps_a_question_from_being_sent(
    page: Page, server: Server
) -> None:
    open_live(page, server)
    page.get_by_text("Settings of the answer").click()
    page.get_by_label("Temperature").fill("5")
    page.get_by_text("Settings of the answer").click()
    expect(page.get_by_label("Temperature")).to_be_hidden()
    page.get_by_label("Message").fill("hot")
    page.get_by_label("Message").press("Enter")
    expect(page.get_by_label("Temperature")).to_be_focused()
    expect(page.get_by_label("Message")).to_have_value("hot")


def test_an_answer_of_an_earlier_chat_is_still_this_pages(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "mine")
    answered(page, 2)
    page.get_by_role("button", name="New chat").click()
    ask(page, "and mine")
    answered(page, 3)
    mine = page.locator(".answer-list li", has_text="this page")
    expect(mine.last).to_contain_text("and mine")
    mine.nth(-2).get_by_role("button").click()
    expect(page.locator(".other")).to_contain_text("An answer of an earlier chat")


def test_the_prompts_tokens_are_shown_on_request(page: Page, server: Server) -> None:
    open_live(page, server)
    page.get_by_label("prompt tokens too").check()
    ask(page, "what is asked")
    answered(page, 4)
    assert page.locator(".prompt-tokens").evaluate("row => row.textContent") == "what is asked"
    page.locator(".prompt-tokens .token").nth(2).hover()
    expect(page.locator(".detail")).to_contain_text("prompt, position 2 · id 2 · L0 3 · FVU 0.25")
    page.get_by_label("prompt tokens too").uncheck()
    expect(page.locator(".prompt-tokens")).to_be_hidden()


def test_a_failure_is_told_where_the_answer_would_be(page: Page, server: Server) -> None:
    open_live(page, server)
    ask(page, "[fail=2] a b c d")
    expect(page.locator(".notice.bad")).to_have_text(
        "The model failed on this request (RuntimeError); the server's log says why."
    )
    expect(page.locator(".answer-tokens")).to_have_text("a b")
    expect(page.locator(".answer-list li").last).to_contain_text("failed")
    ask(page, "and on")
    answered(page, 3)


def test_a_refused_question_says_why(page: Page, server: Server, complaints: Complaints) -> None:
    open_live(page, server)
    page.get_by_text("Settings of the answer").click()
    page.get_by_label("Most tokens").fill("1000")
    ask(page, "too long")
    expect(page.locator(".notice.bad")).to_contain_text("256")
    complaints[:] = [c for c in complaints if "400" not in c]  # the browser tells of it too


def test_hostile_text_stays_text_and_keeps_its_form(page: Page, server: Server) -> None:
    open_live(page, server)
    hostile = "<img/src=x/onerror=alert(1)> \u202eright \u200b \u05e9\u05dc\u05d5\u05dd\n\n\tta\u0007b "
    hostile += "\U0001f469\u200d\U0001f4bb</script> \u2028end"
    ask(page, f"[chars] {hostile}")
    answered(page, len(f" {hostile}".encode()) + 1)
    assert page.locator(".answer-tokens").evaluate("row => row.textContent") == f" {hostile}"
    assert page.locator(".answer-tokens img").count() == 0
    assert page.locator(".token.empty").count() > 6, "bytes inside a character add no text"
    first, last = token(page, 2).bounding_box(), page.locator(".token", has_text="d").last.bounding_box()
    assert first is not None
    assert last is not None
    assert last["y"] - first["y"] > 50, "newlines break lines"
    # The override turns nothing round but itself: what follows stays right of it, on its line.
    override = page.locator(".token.bidi").first
    after = override.locator("xpath=following-sibling::span[1]")
    assert after.bounding_box()["x"] >= override.bounding_box()["x"]  # type: ignore[index]


def test_without_the_features_stream_the_chats_text_is_shown(
    page: Page, server: Server, complaints: Complaints
) -> None:
    open_live(page, server)
    page.route("**/v1/features/stream*", lambda route: route.abort())
    choose_filter(page, "none")  # opens the stream anew, in vain
    expect(page.locator(".stream-state")).to_have_text("reconnecting …")
    ask(page, "text all the same")
    expect(page.locator(".tail")).to_have_text("text all the same")
    page.unroute("**/v1/features/stream*")
    expect(page.locator(".stream-state")).to_have_text("live")
    answered(page, 5)
    expect(page.locator(".tail")).to_be_empty()
    expect(page.locator(".answer-tokens")).to_have_text("text all the same")
    complaints[:] = [c for c in complaints if "ERR_FAILED" not in c]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that keeps 16 events."""
    folder = tmp_path_factory.mktemp("small")
    with serving(folder, serve={"ring": 16}) as running:
        yield running, folder


def test_what_was_missed_is_counted_where_it_is_missing(
    page: Page, small: tuple[Server, Path], complaints: Complaints
) -> None:
    server, _ = small
    server.chat(" ".join(f"w{n}" for n in range(20)))
    open_live(page, server)
    # 22 events, 16 kept: the tokens 6 to 20 and the end.
    page.locator(".answer-list button").last.click()
    expect(page.locator(".gap")).to_have_attribute("data-text", "⟨6 tokens missed⟩")
    expect(token(page, 0)).to_have_text("w6")
    expect(page.locator(".stream-notice")).to_be_empty()
    page.route("**/v1/features/stream*", lambda route: route.abort())
    choose_filter(page, "none")
    expect(page.locator(".stream-state")).to_have_text("reconnecting …")
    lost = server.chat(" ".join(f"x{n}" for n in range(30))).json()["id"]
    page.unroute("**/v1/features/stream*")
    expect(page.locator(".stream-state")).to_have_text("live")
    notice = "16 events were missed: these events are older than the server keeps."
    expect(page.locator(".stream-notice")).to_have_text(notice)
    page.locator(".answer-list button", has_text=lost).click()
    expect(page.locator(".gap")).to_have_attribute("data-text", "⟨16 tokens missed⟩")
    complaints[:] = [c for c in complaints if "ERR_" not in c]


def test_a_restart_is_told_and_the_page_goes_on(
    page: Page, small: tuple[Server, Path], complaints: Complaints
) -> None:
    server, folder = small
    open_live(page, server)
    ask(page, "[delay=0.5] " + "word " * 50)
    expect(token(page, 3)).to_be_visible()
    kill(server)
    expect(page.locator(".stream-state")).to_have_text("reconnecting …")
    expect(page.locator(".notice.bad")).to_have_text(
        "The answer was cut off: the connection to the server broke."
    )
    expect(page.locator("header .status")).to_have_text(
        f"No answer from 127.0.0.1:{server.features_port}. Is the server running?"
    )
    log = folder / "again.log"
    process = launch(folder / "config/config.yaml", "scripted_wsgi", log)
    again = Server(process, server.port, server.features_port, log)
    try:
        again.wait_ready()
        expect(page.locator(".stream-notice")).to_have_text("The server was restarted since the last event.")
        expect(page.locator("header .status")).to_have_text("scripted/model · layer 7")
        expect(page.locator(".answer-list li").last).to_contain_text("end not seen")
        expect(page.locator(".answer-tokens")).to_contain_text("word word word")
        ask(page, "alive again")
        answered(page, 3)
    finally:
        again.stop()
    complaints[:] = [c for c in complaints if "ERR_" not in c and "503" not in c]


def kill(server: Server) -> None:
    """The process that serves, too, with no time to say anything."""
    master = server.process.pid
    workers = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    os.kill(master, signal.SIGSTOP)
    for worker in map(int, workers):
        os.kill(worker, signal.SIGKILL)
    server.stop(signal.SIGKILL)


def test_it_waits_for_the_model_asks_for_the_key_and_tells_what_the_server_lacks(
    page: Page, tmp_path: Path, complaints: Complaints
) -> None:
    env = {"NEUROSCOPE_API_KEY": "a-key", "SCRIPTED_LOAD_SECONDS": "8", "SCRIPTED_RESULTS": "1"}
    with serving(tmp_path, env=env, ready=False) as slow:
        wait_until(slow.answers, what="an open port")
        http.get(f"{slow.features_url}/healthz")  # answered once the process is up, the model or no model
        page.goto(slow.features_url)
        page.get_by_label("Key").get_by_role("textbox").fill("a-key")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator(".stream-state")).to_have_text("live")
        expect(page.get_by_label("Message")).to_be_disabled()
        expect(page.get_by_label("Message")).to_have_attribute("placeholder", "The model is loading …")
        expect(page.get_by_label("Message")).to_be_enabled()
        expect(page.locator(".stream-notice")).to_contain_text("Degraded:")
        ask(page, "let in")
        answered(page, 3)
    complaints[:] = [c for c in complaints if "503" not in c and "401" not in c]


def test_an_answer_is_saved_where_the_server_keeps_recordings(page: Page, server: Server) -> None:
    sent: list[dict[str, Any]] = []

    def sessions(route: Route) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(status=201, json={"id": "s1", "url": "/session/s1"})

    page.route("**/openapi.json", lambda route: route.fulfill(json={"paths": {"/v1/sessions": {}}}))
    page.route("**/v1/sessions", sessions)
    open_live(page, server)
    ask(page, "keep this")
    answered(page, 3)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("link", name="open the recording")).to_have_attribute("href", "/session/s1")
    (body,) = sent
    assert body.pop("completion_id").startswith("chatcmpl-")
    assert body == {
        "title": "keep this",
        "messages": [{"role": "user", "content": "keep this"}],
    }


def test_it_is_used_at_a_phones_width(page: Page, server: Server) -> None:
    page.set_viewport_size(PHONE)
    open_live(page, server)
    ask(page, "a rather long answer of several words and oneverylongwordwithoutanyspace" * 3)
    expect(page.locator(".answer-list [aria-current=true] .state")).to_contain_text("stop")
    page.get_by_role("button", name=re.compile("^Pin ")).first.click()
    token(page, 1).click()
    expect(page.locator(".detail")).to_contain_text("token 2 of the answer")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_picture_for_readme_can_be_made(page: Page, server: Server) -> None:
    show_off(page, server, question="what a picture needs", max_tokens=100)
    expect(page.locator(".lane")).to_have_count(3)
    expect(page.locator(".tokens [aria-selected]")).to_have_count(1)
    assert len(page.screenshot()) > 10_000


def test_the_tokens_of_a_real_tokenizer_are_the_answer(
    page: Page, tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path
) -> None:
    """A tiny random model that says what it is told: characters of several tokens, and features nobody made up."""
    said = "Stra\u00dfe \U0001f469\u200d\U0001f4bb\n\n  caf\u00e9 \u732b <b>"
    with serving(
        tmp_path, app="saying_wsgi", pairing=pairing(tiny_gemma_path, tiny_sae_path), device="cpu"
    ) as real:
        open_live(page, real)
        page.get_by_label("prompt tokens too").check()
        ask(page, f"say[{said}]end")
        expect(page.locator(".answer-list [aria-current=true] .state")).to_contain_text("stop")
        assert page.locator(".answer-tokens").evaluate("row => row.textContent") == said
        assert said in page.locator(".prompt-tokens").evaluate("row => row.textContent")
        assert page.locator(".token.empty").count() > 1
        answer = page.locator(".answer-tokens .token")
        answer.first.click()
        activations = [float(row[-2]) for row in rows(page.locator(".detail"))]
        assert activations
        assert activations == sorted(activations, reverse=True)
