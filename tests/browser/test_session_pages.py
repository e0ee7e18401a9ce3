"""The list of recorded sessions in the browser, and recordings of the reader's own disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import PHONE, Complaints
from browser.kept import ANSWER, HOSTILE, TOKENS, Kept, expect_features, recorded
from playwright.sync_api import Locator, Page, expect
from serving import Server, http, serving


def rows(page: Page) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("checkbox"))


def test_the_list_is_searched_and_opens_a_session(page: Page, known_server: Server) -> None:
    Kept(page, recorded(1), recorded(2, title=HOSTILE), recorded(3, title="", pairing="other"))
    page.goto(f"{known_server.features_url}/sessions")
    expect(rows(page)).to_have_count(3)
    expect(rows(page).nth(0)).to_contain_text("Untitled")
    expect(rows(page).nth(1).get_by_role("link")).to_have_text(HOSTILE)
    page.get_by_label("Search").fill("question SCRIPTED")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Search").fill("no such words")
    expect(page.get_by_text("None of 3 sessions has these words.")).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_role("link", name="Question 1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Question 1")
    expect(page).to_have_title("Question 1 · Neuroscope")
    expect_features(page, ["label of 7", "label of 23"])


def test_without_any_session_it_says_how_to_make_one(page: Page, known_server: Server) -> None:
    Kept(page)
    page.goto(f"{known_server.features_url}/sessions")
    expect(page.get_by_text('neuroscope record "Where is Paris?"')).to_be_visible()
    expect(page.get_by_role("button", name="Open a file …")).to_be_visible()


def test_a_session_is_deleted_after_a_question_only(page: Page, known_server: Server) -> None:
    kept = Kept(page, recorded(1), recorded(2))
    page.goto(f"{known_server.features_url}/sessions")
    page.get_by_role("button", name="Delete Question 2").click()
    page.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Delete Question 2").click()
    page.keyboard.press("Escape")
    assert kept.deleted == []
    page.get_by_role("button", name="Delete Question 2").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("Question 2 is deleted.")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_label("Search")).to_be_focused()
    assert kept.deleted == [recorded(2)["id"]]


def test_two_ticked_ones_are_compared(page: Page, known_server: Server) -> None:
    Kept(page, recorded(1), recorded(2), recorded(3))
    page.goto(f"{known_server.features_url}/sessions")
    expect(page.get_by_role("button", name="Tick two to compare (0)")).to_be_disabled()
    page.get_by_label("Compare Question 3").check()
    page.get_by_label("Compare Question 1").check()
    page.get_by_role("button", name="Compare the two").click()
    page.wait_for_url(f"**/diff?a={recorded(3)['id']}&b={recorded(1)['id']}")
    expect(page.get_by_role("heading", name="No feature differs")).to_be_visible()


def test_a_session_is_saved_as_json_and_as_a_page(page: Page, known_server: Server) -> None:
    made = recorded(1)
    Kept(page, made)
    page.goto(f"{known_server.features_url}/session/{made['id']}")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as JSON").click()
    assert saved.value.suggested_filename == f"{made['id']}.json"
    assert json.loads(saved.value.path().read_text()) == made
    page.goto(f"{known_server.features_url}/sessions")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a page: Question 1").click()
    assert saved.value.suggested_filename == f"{made['id']}.html"


def test_an_unknown_session_is_said(page: Page, known_server: Server, complaints: Complaints) -> None:
    Kept(page)
    page.goto(f"{known_server.features_url}/session/nothing-here")
    expect(page.get_by_role("alert")).to_contain_text("There is no session nothing-here.")
    page.get_by_role("link", name="All sessions").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Recorded sessions")
    complaints[:] = [c for c in complaints if "404" not in c]


def test_at_a_phones_width_nothing_sticks_out(page: Page, known_server: Server) -> None:
    page.set_viewport_size(PHONE)
    Kept(page, recorded(1, title="a-very-long-title-without-any-space" * 4), recorded(2))
    page.goto(f"{known_server.features_url}/sessions")
    expect(page.get_by_text("a-very-long-title")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def open_file(page: Page, server: Server, *files: Any) -> None:
    Kept(page)
    page.goto(f"{server.features_url}/sessions")
    page.locator("input[type=file]").set_input_files(files[0])


def _file(text: str | bytes) -> dict[str, Any]:
    body = text if isinstance(text, bytes) else text.encode()
    return {"name": "given.json", "mimeType": "application/json", "buffer": body}


def test_a_file_is_replayed_and_back_leads_to_the_list(page: Page, known_server: Server) -> None:
    open_file(page, known_server, _file("\ufeff" + json.dumps(recorded(1))))
    expect(page.get_by_role("heading", level=1)).to_have_text("Question 1")
    expect(page.locator("a.feature-name[href='/feature/7']").first).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Recorded sessions")
    expect(page.get_by_role("slider")).to_have_count(0)


def test_a_file_of_another_pairing_has_no_links_to_this_ones_features(
    page: Page, known_server: Server
) -> None:
    expect_other = recorded(1, model="other/model", pairing="other", layer=3, sae_id="other/sae")
    open_file(page, known_server, _file(json.dumps(expect_other)))
    expect(page.get_by_text("layer 3")).to_be_visible()
    expect_features(page, ["label of 7", "label of 23"])
    assert page.locator("a.feature-name[href]").count() == 0


def test_a_file_is_opened_when_it_is_dropped(page: Page, known_server: Server) -> None:
    Kept(page)
    page.goto(f"{known_server.features_url}/sessions")
    expect(page.get_by_text("No session is saved yet.")).to_be_visible()
    page.evaluate(
        """(text) => {
      const data = new DataTransfer();
      data.items.add(new File([text], "dropped.json"));
      const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
      document.querySelector("main").dispatchEvent(drop);
    }""",
        json.dumps(recorded(1)),
    )
    expect(page.get_by_role("heading", level=1)).to_have_text("Question 1")
    expect(page.get_by_text("from dropped.json")).to_be_visible()


WHOLE = json.dumps(recorded(1))
DAMAGED = {
    "cut short": (WHOLE[:-200], "given.json is not JSON, or cut short."),
    "empty": ("", "given.json is not JSON, or cut short."),
    "binary": (bytes(range(256)), "given.json is not JSON, or cut short."),
    "NaN": (WHOLE.replace("0.125", "NaN"), "given.json is not JSON, or cut short."),
    "a list": ("[1, 2]", 'given.json is no recording: it lacks "format": "neuroscope-recording".'),
    "null": ("null", "given.json is no recording"),
    "version": (json.dumps(recorded(1, version=2)), "a recording of version 2; this page reads 1."),
    "tokens": (json.dumps(recorded(1, tokens=7)), "'tokens' must be a list"),
    "no token": (json.dumps(recorded(1, tokens=[])), "'tokens' is empty"),
    "no features": (json.dumps(recorded(1, features={})), "which 'features' does not have"),
    "rate": (WHOLE.replace('"firing_rate": 1.0', '"firing_rate": "1"'), "'features.3'"),
    "huge": (WHOLE.replace("9.0", "1e999"), "holds [3,null,null]"),
    "negative": (WHOLE.replace("9.0", "-9.0"), "holds [3,-9,null]"),
    "a title": (json.dumps(recorded(1, title={"a": 1})), "'title' is {\"a\":1}; it must be a text"),
}


def test_a_file_that_is_no_recording_is_told_as_such(page: Page, known_server: Server) -> None:
    Kept(page)
    page.goto(f"{known_server.features_url}/sessions")
    for name, (text, message) in DAMAGED.items():
        page.locator("input[type=file]").set_input_files(_file(text))
        expect(page.get_by_text(message), name).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_have_text("Recorded sessions")


def test_a_file_of_200_mb_is_refused_unread(page: Page, known_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    open_file(page, known_server, path)
    expect(page.get_by_text("large.json has 200 MB; a recording has 64 MB at most.")).to_be_visible()


def test_the_recording_module_reads_what_python_writes(page: Page, known_server: Server) -> None:
    open_file(page, known_server, _file(json.dumps(recorded(1, ANSWER[:1], messages=None))))
    expect(page.locator(TOKENS)).to_have_text([" w0"])


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("keeping")) as running:
        yield running


def test_an_answer_is_saved_listed_replayed_and_deleted_for_good(
    page: Page, keeping: Server, complaints: Complaints, tmp_path: Path
) -> None:
    answer = keeping.chat("one two three", max_tokens=3, neuroscope={"prompt_features": True}).json()
    sent = {"completion_id": answer["id"], "title": "A saved one"}
    name = http.post(f"{keeping.features_url}/v1/sessions", json=sent).json()["id"]
    page.goto(f"{keeping.features_url}/sessions")
    page.get_by_role("link", name="A saved one").click()
    expect(page.locator(TOKENS)).to_have_text(["one", " two", " three"])
    expect(page.get_by_role("group", name="Prompt")).to_contain_text("one two three")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a page").click()
    saved.value.save_as(tmp_path / "session.html")
    page.goto((tmp_path / "session.html").as_uri())
    expect(page.locator(TOKENS)).to_have_text(["one", " two", " three"])
    page.goto(f"{keeping.features_url}/sessions")
    page.get_by_role("button", name="Delete A saved one").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("No session is saved yet.")).to_be_visible()
    page.goto(f"{keeping.features_url}/session/{name}")
    expect(page.get_by_role("alert")).to_contain_text(f"There is no session {name}.")
    complaints[:] = [c for c in complaints if "404" not in c]
