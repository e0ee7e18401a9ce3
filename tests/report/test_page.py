"""The page: whole in itself, strict about what it loads, and honest about what is missing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import made_report
import pytest

from neuroscope.errors import ArtefactError
from neuroscope.report.page import page, server_url
from neuroscope.report.plots import draw_all
from neuroscope.report.record import Report
from neuroscope.report.stage import make_report
from neuroscope.settings import Settings

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Elements(HTMLParser):
    """Every element with its attributes, and the text outside style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        self.text += " " if tag in ("td", "th", "br") else ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes what is not open"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.all if name == tag]


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    return page(report, draw_all(report), "127.0.0.1", 18100)


@pytest.fixture(scope="module")
def elements(text: str) -> Elements:
    return Elements(text)


def test_it_loads_nothing_and_runs_nothing(text: str, elements: Elements) -> None:
    assert not elements.open
    assert not {tag for tag, _ in elements.all} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "form",
        "input",
    }
    assert not [
        key for _, attributes in elements.all for key in attributes if key.startswith("on") or key == "style"
    ]
    (policy,) = [
        meta["content"]
        for meta in elements.named("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    (style,) = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style
    assert "@import" not in style


def test_it_is_made_for_the_dark_the_phone_and_paper(text: str, elements: Elements) -> None:
    for words in ("prefers-color-scheme: dark", "@media print", "overflow-x: auto"):
        assert words in text
    (viewport,) = [meta["content"] for meta in elements.named("meta") if meta.get("name") == "viewport"]
    assert viewport == "width=device-width, initial-scale=1"
    assert elements.named("html")[0]["lang"] == "en"


def test_the_plots_are_inside(elements: Elements) -> None:
    assert len(elements.named("figure")) == len(elements.named("svg")) == 6
    assert all(svg["role"] == "img" for svg in elements.named("svg"))


def test_the_main_figures_have_a_meaning(elements: Elements) -> None:
    told = " ".join(elements.text.split())
    for words in (
        "Text measured 3,000 tokens, 30 documents what every rate is a share of",
        "(published 40.2)",
        "FVU not measured",
        "Dead features 1 of 16 (6.2%)",
        "Always on 0 of 16 (0.0%)",
        "Labels of tokens 9, 9 of them shown",
        "Score of tokens, rule 0.450",
        "mean balanced accuracy of its labels, with a 95% interval; 0.5 is chance",
        "Model tiny",
        "layer 1, input norm none",
    ):
        assert words in told, words
    assert told.index("Before you believe a number") < told.index("Text measured")


def test_links_lead_to_the_features_port(elements: Elements) -> None:
    links = {link["href"] for link in elements.named("a")}
    assert {"http://127.0.0.1:18100/", "http://127.0.0.1:18100/features"} <= links
    rest = links - {"http://127.0.0.1:18100/", "http://127.0.0.1:18100/features"}
    assert rest
    assert all(re.fullmatch(r"http://127\.0\.0\.1:18100/feature/\d+", link or "") for link in rest)
    assert "http://127.0.0.1:18100/feature/15" in rest


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("a.b", "http://a.b:1"),
    ],
)
def test_an_address_to_listen_on_becomes_one_to_go_to(host: str, url: str) -> None:
    assert server_url(host, 1) == url


def test_hostile_labels_are_text(text: str, elements: Elements) -> None:
    assert "<script" not in text
    assert "<script>alert(1)</script> $\\frac{1}{0}$" in elements.text
    assert not set("\x00\x1b\u202e") & set(text)


def test_hostile_names_of_strata_sources_and_models_are_text(report: Report) -> None:
    bad = "<img src=x onerror=alert(1)>"
    strata = tuple(replace(of, name=bad) for of in report.strata)
    sources = tuple(replace(of, name=bad) for of in report.sources)
    hostile = replace(
        report,
        pairing=bad,
        description=bad,
        strata=strata,
        sources=sources,
        warnings=(bad,),
        fingerprint=replace(report.fingerprint, model=bad, sae=bad),
    )
    found = Elements(page(hostile, draw_all(hostile), "127.0.0.1", 1))
    assert not found.named("img")
    assert found.text.count(bad) >= 8


def test_the_stage_writes_the_same_bytes_every_time_and_nothing_else(empty: Settings) -> None:
    database = made_report.build(empty)
    before = {path.name for path in empty.results.iterdir()}

    def made() -> dict[str, bytes]:
        make_report(
            empty,
            database=database,
            output=empty.results / "report.html",
            record=empty.results / "report/report.json",
        )
        files = [empty.results / "report.html", *(empty.results / "report").iterdir()]
        return {path.name: path.read_bytes() for path in files}

    first = made()
    assert sorted(first) == sorted(
        [
            "report.html",
            "report.json",
            *(f"{name}.svg" for name in ("activations", "active-features", "coverage", "drift")),
            *(f"{name}.svg" for name in ("firing-rates", "label-scores")),
        ]
    )
    assert made() == first
    assert {path.name for path in empty.results.iterdir()} - before == {"report.html", "report"}
    assert str(empty.root).encode() not in b"".join(first.values())
    assert json.loads(first["report.json"])["pairing"] == "smollm2-135m"


def test_without_results_nothing_is_written(empty: Settings, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="There is no results database"):
        make_report(
            empty,
            database=empty.results / "results.duckdb",
            output=empty.results / "report.html",
            record=empty.results / "report/report.json",
        )
    assert os.listdir(tmp_path) == []
