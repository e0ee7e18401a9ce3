"""The table of the soak's figures in docs/server.md, made from the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HEAD = "| under load | promised | measured |\n|---|---|---|\n"
ROWS = (
    ("sse", "delivered"),
    ("sse", "gaps"),
    ("sse", "p99_ms"),
    ("settings", "p99_ms"),
    ("settings", "rankings"),
    ("slow", "speed_kept"),
    ("chats", "hung"),
    ("chats", "refusal_ms"),
    ("chats", "refusal_ratio"),
    ("mix", "wrong"),
    ("mix", "descriptors"),
    ("mix", "greenlets"),
    ("mix", "memory"),
    ("ends", "last_event"),
    ("ends", "status"),
    ("ends", "seconds"),
    ("real", "tokens_0"),
    ("real", "tokens_1000"),
    ("real", "p99_ms_1000"),
)
"""Part and figure of each row; the first of a part is led by the part's title."""


def table(found: dict[str, Any]) -> str:
    """Rows of what was run, the others left out."""
    parts = {part["name"]: part for part in found["parts"]}
    rows, said = [], set()
    for name, figure_name in ROWS:
        part = parts.get(name, {"figures": ()})
        for figure in part["figures"]:
            if figure["name"] == figure_name:
                title = "" if name in said else f"**{part['title']}.** "
                said.add(name)
                rows.append(
                    f"| {title}{figure['what']} | {figure['promised'] or '-'} | {measured(figure)} |\n"
                )
    return HEAD + "".join(rows)


def measured(figure: dict[str, Any]) -> str:
    value = "nothing" if figure["measured"] is None else f"{figure['measured']:,}"
    return f"{value} {figure['unit']}".strip() + ("" if figure["kept"] is not False else " (broken)")


def quote(found: dict[str, Any], page: Path) -> None:
    """Put the table in the place of the one before."""
    text = page.read_text(encoding="utf-8")
    old = re.search(re.escape(HEAD) + r"(\|.*\n)*", text)
    if old is None:
        raise SystemExit(f"{page.name} has no table that begins with {HEAD.splitlines()[0]!r}.")
    page.write_text(text[: old.start()] + table(found) + text[old.end() :], encoding="utf-8")
