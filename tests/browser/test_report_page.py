"""The report's page as a browser shows it: a file on its own, under its own policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.conftest import PHONE
from playwright.sync_api import Page
from report.made_report import build, settings_in

from neuroscope.report.stage import make_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settled = settings_in(tmp_path_factory.mktemp("report"))
    output = settled.results / "report.html"
    make_report(settled, database=build(settled), output=output, record=output.parent / "report/report.json")
    return output


def test_the_page_breaks_no_rule_of_its_own_and_shows_its_plots(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.title() == "smollm2-135m: report"
    plots = page.locator("figure svg")
    assert plots.count() == 6
    for box in [plots.nth(number).bounding_box() for number in range(6)]:
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 150
    assert page.evaluate("getComputedStyle(document.querySelector('.warnings')).borderLeftStyle") == "solid"
    assert page.get_by_role("img", name="How often features fire").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_is_read_in_both_themes_at_a_phones_width(page: Page, report: Path, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size(PHONE)
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    brightness = """selector => {
        const style = getComputedStyle(document.querySelector(selector));
        const colour = selector === "body" ? style.backgroundColor : style.fill;
        return colour.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;
    }"""
    back, ink = page.evaluate(brightness, "body"), page.evaluate(brightness, "figure svg text")
    assert abs(back - ink) > 100
    assert (back > 128) == (scheme == "light")


def test_a_plot_alone_follows_the_theme(page: Page, report: Path) -> None:
    plot = (report.parent / "report/firing-rates.svg").as_uri()
    found = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(plot)
        found[scheme] = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
    assert found == {"light": "rgb(68, 68, 68)", "dark": "rgb(204, 204, 204)"}
