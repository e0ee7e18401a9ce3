"""Two answers or texts side by side in the browser: /diff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from browser.conftest import PHONE, Complaints
from browser.kept import HOSTILE, Kept, recorded
from playwright.sync_api import Locator, Page, expect
from serving import Server

# Feature 4 becomes stronger, 5 vanishes, 6 stays, 7 appears; 3 fires on every token of every text.
A = recorded(
    1, [(" a", {3: 9.0, 4: (5.0, 1.0)}), (" b", {3: 9.0, 5: (8.0, 3.0)}), (" c", {3: 2.0, 6: (4.0, 1.0)})], ()
)
B = recorded(
    2,
    [(" a", {3: 9.0, 4: (10.0, 4.0)}), (" x", {3: 9.0, 7: (4.0, 2.0)}), (" c", {3: 9.0, 6: (4.0, 1.0)})],
    (),
)
BOTH = {"a": A["id"], "b": B["id"]}


def compare(page: Page, server: Server, **words: str) -> None:
    Kept(page, A, B)
    page.goto(f"{server.features_url}/diff?{urlencode({**BOTH, **words})}")
    expect(page.get_by_role("heading", level=2)).to_be_visible()


def labels(page: Page) -> list[str]:
    return page.locator(".differences tbody a").all_inner_texts()


def tokens(page: Page, letter: str) -> Locator:
    return page.locator(".rows > .row").nth("ab".index(letter)).locator(".token")


def test_features_that_appear_vanish_and_change(page: Page, known_server: Server) -> None:
    compare(page, known_server)
    expect(page.get_by_role("heading", level=2)).to_have_text("3 features differ")
    assert labels(page) == ["label of 5", "label of 4", "label of 7"], "by change in surprise, 3 and 3 and 2"
    states = page.locator(".differences .state").all_inner_texts()
    assert states == ["vanishes", "stronger in B", "appears"]
    row = page.get_by_role("row").filter(has_text="label of 4")
    assert row.locator("td").all_text_contents()[1:] == ["A 5", "B 10", "+5", "+3"]
    expect(page.get_by_role("link", name="label of 4")).to_have_attribute("href", "/feature/4")
    expect(page.get_by_text("1 more is alike")).to_be_visible()
    # 3 fires on every token: its change is told when the filter is taken away.
    page.get_by_label("Filter").select_option("none")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", level=2)).to_have_text("4 features differ")
    assert labels(page)[0] in {"label of 3", "label of 5"}


def test_the_table_is_sorted_and_narrowed(page: Page, known_server: Server) -> None:
    compare(page, known_server)
    page.get_by_role("button", name="A", exact=True).click()
    assert labels(page) == ["label of 5", "label of 4", "label of 7"]
    page.get_by_role("button", name="A", exact=True).click()
    assert labels(page) == ["label of 7", "label of 4", "label of 5"]
    assert page.get_by_role("columnheader", name="A", exact=True).get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="appears 1").click()
    assert labels(page) == ["label of 7"]
    page.get_by_role("button", name="vanishes 1").click()
    assert labels(page) == ["label of 7", "label of 5"]
    page.get_by_label("Bars show").select_option("tokens")
    row = page.get_by_role("row").filter(has_text="label of 7")
    assert row.locator("td").all_text_contents()[1:4] == ["A –", "B 1", "+1"]


def test_tokens_are_aligned_and_walked_with_the_keyboard(page: Page, known_server: Server) -> None:
    compare(page, known_server)
    only = [tokens(page, letter).and_(page.locator(".only")).all_inner_texts() for letter in "ab"]
    assert only == [[" b"], [" x"]]
    detail = page.get_by_role("region", name="Features that differ on the token")
    expect(detail).to_contain_text("2 tokens are in both, and features differ on 1 of them.")
    tokens(page, "a").nth(0).focus()
    expect(tokens(page, "b").and_(page.locator(".pair"))).to_have_text(" a")
    expect(detail.get_by_role("listitem")).to_have_text("label of 4A 5B 10")
    page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text("Only in A.")
    expect(page.locator(".pair")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text("In both, and no feature differs.")
    page.keyboard.press("Escape")
    expect(detail).to_contain_text("Point at a token")
    tokens(page, "b").nth(0).hover()
    expect(tokens(page, "a").and_(page.locator(".pair"))).to_have_text(" a")


def test_the_address_names_what_is_compared(page: Page, known_server: Server) -> None:
    kept = Kept(page, A, B)
    page.goto(f"{known_server.features_url}/diff?a={A['id']}")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(
        "B is missing: choose a session or a file, or write a text."
    )
    page.get_by_label("Session B").select_option(
        label=page.get_by_label("Session B").locator("option", has_text="Question 2").inner_text()
    )
    page.get_by_label("Features", exact=True).fill("2")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_text("the first 2 are shown")).to_be_visible()
    assert page.url.endswith(f"/diff?a={A['id']}&b={B['id']}&top_k=2")
    page.get_by_role("button", name="Swap A and B").click()
    page.wait_for_url(f"**/diff?a={B['id']}&b={A['id']}&top_k=2")
    expect(page.locator(".differences .state")).to_have_text(["appears", "weaker in B"])
    page.go_back()
    expect(page.locator(".differences .state")).to_have_text(["vanishes", "stronger in B"])
    expect(page.get_by_label("Features", exact=True)).to_have_value("2")
    assert kept.compared[-1] == {
        "a": {"session": A["id"]},
        "b": {"session": B["id"]},
        "filter": "frequency_surprise",
        "top_k": 2,
        "min_activation": 0,
    }


def _file(made: Any) -> dict[str, Any]:
    return {"name": "given.json", "mimeType": "application/json", "buffer": json.dumps(made).encode()}


def test_recordings_of_the_readers_disk_are_compared(page: Page, known_server: Server) -> None:
    made = recorded(3, [(HOSTILE, {4: 5.0}), (" c", {6: 4.0})], (), title=HOSTILE)
    made["features"]["4"]["label"] = HOSTILE
    page.goto(f"{known_server.features_url}/diff")
    for side, document in enumerate((made, B)):
        page.locator("input[type=file]").nth(side).set_input_files(_file(document))
    expect(page.get_by_text("given.json: Question 2")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", level=2)).to_have_text("2 features differ")
    expect(page.locator(".row h3").first).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_what_cannot_be_compared_is_told(
    page: Page, known_server: Server, complaints: Complaints, tmp_path: Path
) -> None:
    other = recorded(3, layer=8)
    other["fingerprint"]["layer"] = 8
    page.goto(f"{known_server.features_url}/diff")
    page.locator("input[type=file]").nth(0).set_input_files(_file(A))
    page.locator("input[type=file]").nth(1).set_input_files(_file({"format": "other"}))
    expect(page.get_by_text("given.json is no recording")).to_be_visible()
    page.locator("input[type=file]").nth(1).set_input_files(_file(other))
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("layer 7 and 8")
    (long := tmp_path / "long.json").write_text(json.dumps({**A, "padding": "x" * 16_000_000}))
    page.locator("input[type=file]").nth(1).set_input_files(long)
    expect(page.get_by_text("long.json: Question 1")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("16,000,000 are compared at most")
    complaints[:] = [c for c in complaints if "400" not in c]


def test_two_texts_and_a_chat_prompt_are_compared_by_the_server(page: Page, known_server: Server) -> None:
    page.goto(f"{known_server.features_url}/diff?a_text=one+two+three&b_text=one+two+three")
    expect(page.get_by_role("heading", level=2)).to_have_text("No feature differs")
    page.get_by_label("What B is").select_option("Chat prompt")
    page.get_by_label("Text B").fill("one two three four")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(tokens(page, "b").and_(page.locator(".only"))).to_have_text([" four"])
    expect(page.get_by_role("heading", level=2)).to_have_text("2 features differ")
    assert page.url.endswith("?a_text=one+two+three&b_chat=one+two+three+four")


def test_at_a_phones_width_nothing_sticks_out(page: Page, known_server: Server) -> None:
    page.set_viewport_size(PHONE)
    compare(page, known_server)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    bars = page.locator(".differences .bar-cell")
    assert all(
        box["x"] + box["width"] <= PHONE["width"] for box in (bar.bounding_box() or {} for bar in bars.all())
    )
    tokens(page, "a").nth(0).focus()
    expect(page.get_by_role("region", name="Features that differ on the token")).to_contain_text("label of 4")
