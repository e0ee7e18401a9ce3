"""A recording as one HTML file that works without server and network: the replay page with everything in it.

Its Content-Security-Policy lets run its own script, known by hash, and nothing else: no text of the recording can
become code, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache

from neuroscope.recording import Recording
from neuroscope.server.bundle import bundled
from neuroscope.server.pages import web_files

PAGE = "session.html"
ELEMENT = "recording"
"""Id of the script element with the recording's JSON; where there is one, the page shows it and asks no server."""

_STYLE = re.compile(r'<link rel="stylesheet" href="/static/([\w.-]+\.css)">')
_SCRIPT = re.compile(r'<script type="module" src="/static/([\w.-]+\.js)"></script>')
_ICON = re.compile(r'<link rel="icon" href="/static/[\w.-]+"[^>]*>\n?')
_CHAT_PORT = re.compile(r' data-chat-port="\d+"')
_TITLE = re.compile("<title>[^<]*</title>")
_CHARSET = '<meta charset="utf-8">\n'
_FETCHED = re.compile(r"@import|url\((?!data:)", re.IGNORECASE)
_IN_JSON = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def session_html(recording: Recording) -> str:
    """The whole file."""
    before, after = _shell()
    title = html.escape(recording.title, quote=False)
    data = recording.to_json()
    for character, escape in _IN_JSON.items():
        data = data.replace(character, escape)
    head = _TITLE.sub(lambda _: f"<title>{title} · Neuroscope</title>", before, count=1)
    return f'{head}<script type="application/json" id="{ELEMENT}">{data}</script>\n{after}'


@cache
def _shell() -> tuple[str, str]:
    """What all such files have in common, before and after the recording."""
    files = {name: file.body.decode() for name, file in web_files(0).items() if not name.endswith(".svg")}
    before, end, after = single_page(files).rpartition("</body>")
    return before, end + after


def single_page(files: Mapping[str, str]) -> str:
    """`session.html` of `files` with its style sheets and scripts in it. Raises ValueError for what stays outside."""
    page = _CHAT_PORT.sub("", _ICON.sub("", files[PAGE]))
    styles: list[str] = []
    scripts: list[str] = []

    def style(found: re.Match[str]) -> str:
        text = files[f"static/{found[1]}"]
        if outside := _FETCHED.search(text):
            raise ValueError(f"{found[1]} would fetch something ({outside[0]})")
        styles.append(text)
        return f"<style>{text}</style>"

    def script(found: re.Match[str]) -> str:
        scripts.append(bundled(found[1], lambda name: files[f"static/{name}"]))
        return f'<script type="module">{scripts[-1]}</script>'

    page = _SCRIPT.sub(script, _STYLE.sub(style, page))
    if "/static/" in re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL):
        raise ValueError(f"{PAGE} asks for a file in a way that cannot be put into it")
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    if page.count(_CHARSET) != 1:
        raise ValueError(f"{PAGE} must say its encoding once, as {_CHARSET.strip()}")
    return page.replace(_CHARSET, _CHARSET + meta)


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
