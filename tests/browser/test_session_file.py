"""A recording as one HTML file, opened from disk without network: it runs its own script and nothing else."""

from __future__ import annotations

from pathlib import Path

from made_recordings import recording
from playwright.sync_api import Page

from neuroscope.server import session_html as exporter

FILES = {
    "session.html": (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>x</title>\n'
        '<link rel="stylesheet" href="/static/session.css">\n'
        '<script type="module" src="/static/session.js"></script>\n</head>\n<body>\n<main id="main"></main>\n'
        "</body>\n</html>\n"
    ),
    "static/session.css": "#main { color: rgb(1, 2, 3) }",
    "static/session.js": (
        'import { h as element, Counter } from "./dom.js";\nimport { read } from "./data.js";\n'
        "const counter = new Counter();\nfor (const token of read().tokens) {\n"
        '  document.getElementById("main").append(element("span", token.token));\n  counter.add();\n}\n'
        "document.body.dataset.count = await counter.later();\n"
    ),
    "static/dom.js": (
        "const hidden = 'of dom';\nexport function h(name, text) {\n  const made = document.createElement(name);\n"
        "  made.textContent = text;\n  return made;\n}\nexport class Counter {\n  #n = 0;\n  add() { this.#n += 1; }\n"
        "  async later() { return this.#n; }\n}\n"
    ),
    "static/data.js": (
        'const hidden = "of data";\nexport const ID = "recording";\n'
        "export function read() {\n  return JSON.parse(document.getElementById(ID).textContent);\n}\n"
    ),
}
HOSTILE = (
    "</script><script>document.body.dataset.owned=1</script><img src=x onerror=document.body.dataset.owned=1>"
)


def written(folder: Path, page: str) -> str:
    path = folder / "a session.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


def export(folder: Path, files: dict[str, str], title: str = "t") -> str:
    before, _, after = exporter.single_page(files).rpartition("</body>")
    words = [(HOSTILE, {4: 1.0}), ("日本語 \u2028 😀", {5: 1.0})]
    made = recording(words, title=title)
    whole = exporter.session_html(made)
    start, end = whole.index('<script type="application/json"'), whole.index("</body>")
    return written(folder, f"{before}{whole[start:end]}</body>{after}")


def test_modules_work_as_one_file_from_disk(page: Page, tmp_path: Path) -> None:
    page.context.set_offline(True)
    page.goto(export(tmp_path, FILES))
    page.wait_for_selector("body[data-count='2']")
    assert page.locator("#main").text_content() == HOSTILE + "日本語 \u2028 😀"
    assert page.locator("#main").evaluate("e => getComputedStyle(e).color") == "rgb(1, 2, 3)"
    assert page.evaluate("document.body.dataset.owned") is None
    assert page.locator("img").count() == 0


def test_nothing_else_runs_in_it(page: Page, tmp_path: Path, complaints: list[str]) -> None:
    """Where a text came out of its place as markup after all, the policy would still refuse it."""
    address = export(tmp_path, FILES)
    path = tmp_path / "a session.html"
    text = path.read_text(encoding="utf-8")
    inserted = (
        "<script>document.body.dataset.owned=1</script><img src=x onerror='document.body.dataset.owned=1'>"
        "<style>#main { color: red }</style><script src='https://evil.example/x.js'></script>"
    )
    path.write_text(text.replace('<main id="main">', f'{inserted}<main id="main">'), encoding="utf-8")
    page.goto(address)
    page.wait_for_selector("body[data-count='2']")
    assert page.evaluate("document.body.dataset.owned") is None
    assert page.locator("#main").evaluate("e => getComputedStyle(e).color") == "rgb(1, 2, 3)"
    assert len(complaints) >= 4
    tried = "another host: https://evil.example/x.js"  # which the policy ended before it left
    assert all("Content Security Policy" in told for told in complaints if told != tried)
    complaints.clear()
