"""Modules as one script: what is understood keeps its meaning, what is not is refused by name."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest
from made_recordings import recording

from neuroscope.server.bundle import bundled
from neuroscope.server.pages import web_files
from neuroscope.server.session_html import ELEMENT, session_html, single_page

STATIC = resources.files("neuroscope.server") / "web/static"
PAGE = (
    '<!doctype html>\n<html lang="en" data-chat-port="8080">\n<head>\n<meta charset="utf-8">\n<title>Session</title>\n'
    '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">\n<link rel="stylesheet" href="/static/a.css">\n'
    '<script type="module" src="/static/session.js"></script>\n</head>\n<body>\n<main></main>\n</body>\n</html>\n'
)


def of(**modules: str) -> str:
    return bundled("main.js", lambda name: modules[name.removesuffix(".js")])


def test_imported_modules_come_first_each_once_and_in_a_scope_of_its_own() -> None:
    script = of(
        main='import { a } from "./one.js";\nimport { b as c, d } from "./two.js";\nlet x = a + c + d;\n',
        one='import { d } from "./two.js";\nlet x = 1;\nexport const a = x + d;\n',
        two="let x = 2;\nexport function b() { return x; }\nexport class d {}\nexport async function e() {}\n",
    )
    assert script == (
        "const $two = (() => {\nlet x = 2;\nfunction b() { return x; }\nclass d {}\nasync function e() {}\n"
        "return { b, d, e };\n})();\n"
        "const $one = (() => {\nconst { d } = $two;\nlet x = 1;\nconst a = x + d;\nreturn { a };\n})();\n"
        "{\nconst { a } = $one;\nconst { b: c, d } = $two;\nlet x = a + c + d;\n}\n"
    )


def test_a_list_of_names_over_several_lines() -> None:
    script = of(
        main='import {\n  a,\n  b as c,\n} from "./one.js";\n',
        one="export const a = 1;\nexport const b = 2;\n",
    )
    assert "const { a, b: c } = $one;" in script


@pytest.mark.parametrize(
    "line",
    [
        'import x from "./one.js";',
        'import * as x from "./one.js";',
        'import "./one.js";',
        'import { x } from "https://evil.example/one.js";',
        'import { x } from "../one.js";',
        'import { x } from "./one.js"',
        'const x = await import("./one.js");',
        "console.log(import.meta.url);",
        "export default 5;",
        "export let x = 1;",
        "export { x };",
        'export * from "./one.js";',
        "const x = '</script>';",
        "const x = '<!--';",
    ],
)
def test_what_is_written_otherwise_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="cannot be put into one file with others"):
        of(main=f"{line}\n", one="export const x = 1;\n")


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match=re.escape("in a circle: main.js > one.js > main.js")):
        of(
            main='import { a } from "./one.js";\n',
            one='import { b } from "./main.js";\nexport const a = 1;\n',
        )


@pytest.mark.parametrize("name", sorted(path.name for path in STATIC.iterdir() if path.name.endswith(".js")))
def test_every_module_of_the_pages_can_be_put_into_one_file(name: str) -> None:
    assert bundled(name, lambda other: (STATIC / other).read_text(encoding="utf-8"))


def files(**more: str) -> dict[str, str]:
    return {"session.html": PAGE, "static/a.css": "p { color: red }", "static/session.js": "let x;\n", **more}


def test_a_page_holds_its_files_and_lets_run_nothing_else() -> None:
    page = single_page(files())
    assert "<style>p { color: red }</style>" in page
    assert '<script type="module">{\nlet x;\n}\n</script>' in page
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[\w+/]{43}='; style-src 'sha256-[\w+/]{43}='; img-src data:; "
        r"base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
        policy,
    )
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert "chat-port" not in page
    assert "/static/" not in page


@pytest.mark.parametrize(
    "more",
    [
        {"static/a.css": '@import "b.css";'},
        {"static/a.css": "p { background: url(https://evil.example/x.png) }"},
        {"session.html": PAGE.replace("</body>", '<img src="/static/a.png"></body>')},
        {"session.html": PAGE.replace('<meta charset="utf-8">\n', "")},
    ],
    ids=["import", "url", "picture", "no encoding"],
)
def test_what_would_stay_outside_the_file_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"would fetch something|cannot be put into it|say its encoding"):
        single_page(files(**more))


HOSTILE = (
    "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>--> &amp; \u2028\u2029 \\u003c \0"
)


def test_the_recording_in_the_page_is_data_whatever_it_says() -> None:
    made = recording([(HOSTILE, {4: 1.0})], title=HOSTILE, model=HOSTILE)
    page = session_html(made)
    (data,) = re.findall(rf'<script type="application/json" id="{ELEMENT}">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data) == made.to_dict()
    assert not set(data) & set("<>&\u2028\u2029")
    (title,) = re.findall("<title>(.*?)</title>", page, re.DOTALL)
    assert "<" not in title
    assert page.count("</script>") == 2 + page.count('type="module"') - 1
    assert page.rstrip().endswith("</html>")


def test_the_page_is_the_one_that_is_served() -> None:
    served = web_files(8080)["session.html"].body.decode()
    body = served[served.index("<body") : served.index("</body>")]
    assert body in session_html(recording())
