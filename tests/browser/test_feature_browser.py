"""The browser of features: what it finds, the keys, the address, and that many rows stay few elements."""

from __future__ import annotations

from typing import Any

import pytest
from browser.conftest import PHONE, Complaints
from browser.page_checks import HOSTILE, SHIFTS, refuse
from playwright.sync_api import Locator, Page, expect
from serving import Server, wait_until

MOST_ROWS = 80
"""Elements of rows that may be on the page, however many features there are."""


def opened(page: Page, server: Server, query: str = "") -> Locator:
    """The grid, once it shows rows or says that there are none."""
    page.goto(f"{server.features_url}/features{query}")
    expect(page.locator(".found")).to_contain_text("features")
    return page.get_by_role("grid", name="Features")


def rows(page: Page) -> list[str]:
    """The numbers of the features in view, from the top."""
    return list(
        page.evaluate(
            "[...document.querySelectorAll('.rows .row:not([hidden])')]"
            ".sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex'))"
            ".map((row) => row.firstChild.textContent)"
        )
    )


def made(width: int) -> dict[str, Any]:
    """A table of many features: feature f is called `made f`, every tenth has no name."""
    return {
        "sae_id": "made",
        "width": width,
        "sources": ["tokens"],
        "label": [None if f % 10 == 0 else f"made {f}" for f in range(width)],
        "source": [None if f % 10 == 0 else 0 for f in range(width)],
        "score": [None if f % 10 == 0 else (f % 100) / 100 for f in range(width)],
        "firing_rate": [f / width for f in range(width)],
        "max_activation": [float(f % 7) for f in range(width)],
    }


def give(page: Page, table: dict[str, Any]) -> None:
    page.route("**/v1/features/table", lambda route: route.fulfill(json=table))


def test_every_feature_is_a_row_with_its_figures(page: Page, known_server: Server) -> None:
    grid = opened(page, known_server)
    expect(page.locator(".found")).to_have_text("32 features of scripted/sae")
    expect(grid).to_have_attribute("aria-rowcount", "33")
    cells = grid.get_by_role("row").filter(has_text="label of 10").get_by_role("gridcell")
    assert cells.all_text_contents() == ["10", "label of 10", "10%", "0.60", "3", "tokens"]
    assert grid.get_by_role("row").filter(has_text="label of 10").get_attribute("aria-rowindex") == "12"
    never = grid.get_by_role("row").filter(has_text="label of 0").get_by_role("gridcell")
    assert never.all_text_contents() == ["0", "label of 0", "never", "0.50", "0", "tokens"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("strasse", ["5"]),
        ("ÉTÉ", ["6"]),
        ("CAFÉ", ["8"]),
        ("猫", ["9"]),
        ("%", ["7"]),
        ("  imported ", ["4"]),
        ("label of 1", ["1", *map(str, range(10, 20))]),
        ("30", ["30"]),  # by its number, which is no part of a label
        ("nowhere", []),
        ("' OR 1=1 --", []),
    ],
)
def test_a_search_finds_what_the_server_would_and_numbers(
    page: Page, known_server: Server, text: str, found: list[str]
) -> None:
    opened(page, known_server)
    page.get_by_label("Search labels").fill(text)
    expect(page.locator(".found")).to_have_text(f"{len(found)} of 32 features")
    assert rows(page) == found


@pytest.mark.parametrize("sort", ["feature", "label", "firing_rate", "score", "max"])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_features_are_sorted_as_the_server_sorts_them(
    page: Page, known_server: Server, sort: str, order: str
) -> None:
    opened(page, known_server, f"?sort={sort}&order={order}")
    expected = known_server.get(f"/v1/features/search?sort={sort}&order={order}").json()["features"]
    found = rows(page)
    assert len(found) > 15
    assert found == [str(row["feature"]) for row in expected][: len(found)]


def test_a_head_sorts_and_turns_round(page: Page, known_server: Server) -> None:
    grid = opened(page, known_server)
    head = grid.get_by_role("columnheader", name="Fires on")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert rows(page)[:2] == ["31", "30"]
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert rows(page)[:2] == ["0", "1"]
    assert grid.locator("[aria-sort]").count() == 1
    expect(page).to_have_url(f"{known_server.features_url}/features?sort=firing_rate&order=asc")


def test_filters_leave_what_they_say(page: Page, known_server: Server) -> None:
    opened(page, known_server)
    said = page.locator(".found")
    page.get_by_label("with a label").check()
    expect(said).to_have_text("28 of 32 features")
    page.get_by_label("that fire").check()
    expect(said).to_have_text("27 of 32 features")
    page.get_by_label("score at least").fill("0.7")
    expect(said).to_have_text("8 of 32 features")  # 20 to 27
    page.get_by_label("score at least").fill("")
    page.get_by_role("combobox").select_option("neuronpedia")
    expect(said).to_have_text("1 of 32 features")
    assert rows(page) == ["4"]
    expect(page).to_have_url(f"{known_server.features_url}/features?labelled=1&alive=1&source=neuronpedia")


def test_the_address_holds_what_is_asked_for_and_back_goes_back(page: Page, known_server: Server) -> None:
    opened(page, known_server)
    page.get_by_label("Search labels").fill("label of")
    page.get_by_role("columnheader", name="Score").get_by_role("button").click()
    page.get_by_label("with a label").check()
    expect(page).to_have_url(f"{known_server.features_url}/features?q=label+of&sort=score&labelled=1")
    before = rows(page)
    page.reload()
    expect(page.locator(".found")).to_have_text("22 of 32 features")
    assert rows(page) == before
    expect(page.get_by_label("Search labels")).to_have_value("label of")
    page.go_back()
    expect(page.get_by_label("with a label")).not_to_be_checked()
    page.go_back()
    expect(page).to_have_url(f"{known_server.features_url}/features?q=label+of")
    expect(page.get_by_role("columnheader", name="Score")).not_to_have_attribute("aria-sort", "descending")


@pytest.mark.parametrize(
    "query",
    [
        "?sort=nonsense&order=up",
        "?score=abc",
        "?score=7",
        "?q=&source=&score=",
        "?%ff=%00",
        "?sort=__proto__",
    ],
)
def test_a_broken_address_is_read_as_far_as_it_can_be(page: Page, known_server: Server, query: str) -> None:
    opened(page, known_server, query)
    expect(page.locator(".found")).to_have_text("32 features of scripted/sae")


def test_keys_go_through_the_rows_and_open_one_and_back_is_the_same_place(
    page: Page, known_server: Server, complaints: Complaints
) -> None:
    give(page, made(16_384))
    grid = opened(page, known_server)
    page.keyboard.press("/")
    expect(page.get_by_label("Search labels")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(grid).to_be_focused()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    expect(grid).to_have_attribute("aria-activedescendant", "row-1")
    page.keyboard.press("End")
    expect(grid).to_have_attribute("aria-activedescendant", "row-16383")
    expect(page.locator("#row-16383")).to_be_in_viewport()
    expect(page.locator("#row-16383")).to_have_attribute("aria-rowindex", "16385")
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("PageDown")
    current = int((grid.get_attribute("aria-activedescendant") or "").removeprefix("row-"))
    assert 30 < current < 70
    expect(page.locator(f"#row-{current}")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{known_server.features_url}/feature/{current}")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such feature")  # but in the table
    complaints.clear()
    page.go_back()
    expect(page.locator(f"#row-{current}")).to_be_in_viewport()
    expect(page.locator(f"#row-{current}")).to_have_attribute("aria-selected", "true")


def test_a_row_is_a_link_and_a_click_anywhere_in_it_opens_it(page: Page, known_server: Server) -> None:
    grid = opened(page, known_server)
    row = grid.locator("#row-11")
    assert row.get_by_role("link").get_attribute("href") == "/feature/11"
    row.get_by_role("gridcell").nth(3).click()
    expect(page).to_have_url(f"{known_server.features_url}/feature/11")


MEASURE = """
async () => {
  const frame = document.querySelector(".frame"), frames = [], long = [];
  new PerformanceObserver((list) => long.push(...list.getEntries().map((e) => e.duration)))
    .observe({ type: "longtask" });
  let before = performance.now();
  for (let n = 0; n < 60; n += 1) {
    frame.scrollTop += 900;
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - before);
    before = performance.now();
  }
  frames.sort((a, b) => a - b);
  return { median: frames[30], slowest: frames[59], long: long.length, rows: frame.querySelectorAll(".row").length };
}
"""


@pytest.mark.parametrize("width", [16_384, 131_072])
def test_many_features_are_few_elements(page: Page, known_server: Server, width: int) -> None:
    give(page, made(width))
    grid = opened(page, known_server)
    expect(grid).to_have_attribute("aria-rowcount", str(width + 1))
    measured = page.evaluate(MEASURE)
    print(f"{width:,} features: {measured}")
    assert measured["rows"] <= MOST_ROWS
    page.get_by_label("Search labels").fill("made 77")
    expect(page.locator(".found")).to_contain_text(f" of {width:,} features")
    assert rows(page)[:2] == ["77", "771"]
    took = page.evaluate(
        "async () => { const start = performance.now(); document.querySelectorAll('.head button')[1].click();"
        " return performance.now() - start; }"
    )
    print(f"sorting by label took {took:.0f} ms")
    assert page.locator(".row").count() <= MOST_ROWS


def test_more_rows_than_a_browser_lays_out_can_all_be_reached(page: Page, known_server: Server) -> None:
    """400,000 rows would be 14,400,000 pixels tall."""
    width = 400_000
    nothing: list[None] = [None] * width
    give(
        page,
        {"sae_id": "made", "width": width, "sources": []}
        | dict.fromkeys(("label", "source", "score", "firing_rate", "max_activation"), nothing),
    )
    grid = opened(page, known_server)
    grid.focus()
    page.keyboard.press("End")
    expect(page.locator("#row-399999")).to_be_in_viewport()
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    expect(page.locator("#row-399969")).to_be_in_viewport()
    page.evaluate("document.querySelector('.frame').scrollTop = 4e6")
    wait_until(lambda: 190_000 < int(rows(page)[0]) < 210_000)
    seen = [int(number) for number in rows(page)]
    assert seen == list(range(seen[0], seen[0] + len(seen)))


def test_hostile_labels_are_texts(page: Page, known_server: Server) -> None:
    table = made(len(HOSTILE))
    give(page, {**table, "label": HOSTILE, "sources": [HOSTILE[0]], "source": [0] * len(HOSTILE)})
    grid = opened(page, known_server)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    names = grid.get_by_role("link").all_text_contents()
    assert names[0] == HOSTILE[0]
    assert (names[2], names[3]) == ("⟨200B⟩", "a↵b␍⇥c␀d␛[31m")
    assert len(names[4]) < 300
    heights = page.evaluate(
        "[...document.querySelectorAll('.rows .row:not([hidden])')].map((row) => row.offsetHeight)"
    )
    assert set(heights) == {36}


def test_on_a_phone_the_rows_scroll_in_their_own_frame_and_nothing_moves(
    page: Page, known_server: Server
) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.add_init_script(SHIFTS)
    opened(page, known_server)
    expect(page.get_by_role("status").first).to_contain_text("layer 7")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert sum(page.evaluate("window.shifts")) < 0.01


def test_results_that_cannot_be_read_are_told(
    page: Page, known_server: Server, complaints: Complaints
) -> None:
    why = "results.duckdb cannot be read any more. Make it anew with `snakemake --cores 4 labels`."
    page.route("**/v1/features/table", lambda route: refuse(route, 503, "results_unreadable", why))
    page.goto(f"{known_server.features_url}/features")
    expect(page.locator(".found")).to_have_text(why)
    assert complaints
    complaints.clear()
