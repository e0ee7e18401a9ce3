"""A recorded session is replayed in the browser: without a model, and from a file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import PHONE, Complaints
from browser.kept import HOSTILE, TOKENS, Kept, expect_features, open_session, recorded
from playwright.sync_api import Page, expect
from serving import Server, serving, wait_until

from neuroscope.recording import check_recording
from neuroscope.server.session_html import session_html


def test_it_appears_token_by_token_as_it_did(page: Page, known_server: Server) -> None:
    open_session(page, known_server)
    expect(page.locator(TOKENS)).to_have_count(12)
    slider = page.get_by_role("slider")
    slider.fill("3")
    expect(page.locator(TOKENS)).to_have_text([" w0", " w1", " w2"])
    expect_features(page, ["label of 6", "label of 22"])
    page.get_by_role("button", name="One token on").click()
    expect(page.locator(TOKENS)).to_have_count(4)
    page.get_by_role("button", name="One token back").click()
    expect(page.locator(TOKENS)).to_have_count(3)
    page.get_by_label("Speed").select_option("25 tokens/s")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(TOKENS)).to_have_count(12)
    expect(page.get_by_role("button", name="Replay", exact=True)).to_be_visible()
    expect(page.get_by_text("12 of 12")).to_be_visible()
    expect(page.get_by_text("longest length")).to_be_visible()


def test_a_replay_is_paused_and_begins_anew_at_its_end(page: Page, known_server: Server) -> None:
    open_session(page, known_server)
    page.get_by_label("Speed").select_option("2 tokens/s")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator(TOKENS)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    shown = page.locator(TOKENS).count()
    page.wait_for_timeout(700)  # longer than a token takes
    assert page.locator(TOKENS).count() == shown < 12


def test_filters_act_on_the_recording_in_the_page(page: Page, known_server: Server) -> None:
    open_session(page, known_server)
    expect_features(page, ["label of 7", "label of 23"])  # feature 3 fires on every token
    page.get_by_label("Filter").select_option("none")
    expect_features(page, ["label of 3", "label of 7", "label of 23"])
    page.get_by_label("Filter").select_option("surprise")
    expect_features(page, ["label of 7", "label of 23", "label of 3"])  # 3 has no surprise
    page.get_by_label("Features", exact=True).fill("1")
    expect(page.get_by_role("region", name="Token", exact=True).locator("li:not([hidden])")).to_have_count(1)
    page.get_by_label("Features", exact=True).fill("0")
    page.get_by_label("Features", exact=True).fill("10")
    page.get_by_label("Activation at least").fill("6")
    expect(page.get_by_role("region", name="Token", exact=True).locator("li:not([hidden])")).to_have_count(1)
    expect_features(page, ["label of 3"])
    page.get_by_label("Activation at least").fill("")
    expect_features(page, ["label of 3"])  # half a number changes nothing


def test_a_control_token_does_not_fade_out_the_others(page: Page, known_server: Server) -> None:
    """What fires on the first token of a chat is a hundred times as strong as anywhere else."""
    scaffold = ("<user>", {4: (900.0, 400.0), 3: 9.0})
    open_session(page, known_server, [(" w", {4: (5.0, 8.0), 3: 9.0})], [scaffold])
    tint = "(element) => ['--t', '--most'].map((name) => getComputedStyle(element).getPropertyValue(name))"
    assert page.locator(TOKENS).evaluate(tint) == ["8", "8"]
    assert page.locator(".prompt-tokens .token").evaluate(tint) == ["400", "8"]
    page.locator(".pin-button").first.click()
    expect(page.get_by_text("max 5", exact=True)).to_be_visible()


def test_prompt_tokens_are_shown_on_request(page: Page, known_server: Server) -> None:
    open_session(page, known_server)
    prompt = page.get_by_role("group", name="Prompt")
    expect(prompt).to_be_visible()
    page.get_by_label("Prompt tokens").uncheck()
    expect(prompt).to_be_hidden()


def test_a_token_that_was_chosen_stays_chosen_when_the_filter_changes(
    page: Page, known_server: Server
) -> None:
    open_session(page, known_server)
    page.locator(TOKENS).nth(2).focus()
    expect_features(page, ["label of 6", "label of 22"])
    page.get_by_label("Filter").select_option("none")
    expect(page.locator(f"{TOKENS}[aria-selected]")).to_have_text(" w2")
    expect_features(page, ["label of 3", "label of 6", "label of 22"])


def test_labels_and_texts_of_others_are_text(page: Page, known_server: Server) -> None:
    made = recorded(1, [(HOSTILE, {4: 5.0}), ("\n\x00\u200b", {5: 5.0})], title=HOSTILE)
    made["features"]["4"]["label"] = HOSTILE
    made["messages"] = [{"role": "user", "content": HOSTILE}]
    made["degraded"] = [HOSTILE]
    Kept(page, made)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(f"{known_server.features_url}/session/{made['id']}")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_text("The conversation before the answer").click()
    expect(page.locator(".said")).to_have_text(HOSTILE)
    page.locator(TOKENS).first.focus()
    expect_features(page, [HOSTILE])
    assert page.locator("img").count() == 0


def test_a_feature_without_statistics_or_label_is_shown(page: Page, known_server: Server) -> None:
    made = recorded(1)
    for index, about in made["features"].items():
        about.update(label=f"feature_{index}", firing_rate=None, mean_firing=None, variance_firing=None)
    for token in made["tokens"]:
        token["fvu"] = None
        token["top_features"] = [[index, activation, None] for index, activation, _ in token["top_features"]]
    Kept(page, made)
    page.goto(f"{known_server.features_url}/session/{made['id']}")
    expect(page.get_by_role("slider")).to_be_visible()
    expect_features(page, ["feature_3", "feature_7", "feature_23"]), ("a rate that is unknown hides nothing")


def test_five_thousand_tokens_are_shown_and_moved_through(page: Page, known_server: Server) -> None:
    answer = [(f" w{n}", {f: (1.0 + (n * f) % 50, 0.5) for f in range(8)}) for n in range(5000)]
    made = recorded(1, answer)
    Kept(page, made)
    page.goto(f"{known_server.features_url}/session/{made['id']}")
    expect(page.locator(TOKENS)).to_have_count(5000, timeout=60_000)
    spent = page.evaluate("""async () => {
      const slider = document.querySelector("input[type=range]");
      const times = [];
      for (const at of [4000, 2500, 1, 2, 3, 4998, 4999, 5000]) {
        const start = performance.now();
        slider.value = at;
        slider.dispatchEvent(new Event("input"));
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        times.push(Math.round(performance.now() - start));
      }
      return times;
    }""")
    expect(page.locator(TOKENS)).to_have_count(5000)
    print(f"milliseconds of the moves: {spent}")
    assert min(spent) < 500, "a step of one token does not draw the others again"


def test_at_a_phones_width_nothing_sticks_out(page: Page, known_server: Server) -> None:
    page.set_viewport_size(PHONE)
    open_session(page, known_server, title="a-very-long-title-without-any-space" * 4)
    page.locator(".pin-button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("loading")
    with serving(folder, env={"SCRIPTED_LOAD_SECONDS": "600"}, ready=False) as running:
        wait_until(running.answers)
        yield running


def test_a_session_is_replayed_while_the_model_is_loading(
    page: Page, loading: Server, complaints: Complaints
) -> None:
    open_session(page, loading)
    expect(page.locator(TOKENS)).to_have_count(12)
    expect(page.get_by_role("status").first).to_have_text("the model is loading …")
    complaints[:] = [c for c in complaints if "503" not in c]


def test_a_page_in_one_file_is_replayed_without_server_or_network(page: Page, tmp_path: Path) -> None:
    made = recorded(1, title=HOSTILE)
    made["features"]["7"]["label"] = HOSTILE
    path = tmp_path / "session.html"
    path.write_text(session_html(check_recording(made, of="the test")), encoding="utf-8")
    page.on("request", lambda request: None if request.url == path.as_uri() else pytest.fail(request.url))
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_role("slider").fill("4")
    expect(page.locator(TOKENS)).to_have_count(4)
    expect_features(page, [HOSTILE, "label of 23"])
    assert page.locator("a[href]:not(.skip)").count() == 0
    page.get_by_role("button", name="Colours: auto").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as JSON").click()
    assert json.loads(saved.value.path().read_text()) == made
