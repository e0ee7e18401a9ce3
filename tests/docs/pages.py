"""The pages that people read, as blocks of code with the language and the place of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """What stands after a `$`, its comment left out; a line that ends in a backslash goes on."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(language: str | None = None, page: str | None = None) -> list[Block]:
    """Of every page, or of one; of every language, or of one."""
    found = []
    for name in PAGES if page is None else (page,):
        whole = text(name)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", whole, flags=re.MULTILINE | re.DOTALL):
            line = whole[: match.start()].count("\n") + 1
            found.append(Block(name, line, match[1], match[2]))
    return [block for block in found if language in (None, block.language)]


def commands() -> list[Command]:
    """Every `$ ...` of every console block."""
    found = []
    for block in blocks("console"):
        lines = block.text.splitlines()
        for number, line in enumerate(lines):
            if not line.startswith("$ "):
                continue
            while line.endswith("\\"):
                number += 1  # noqa: PLW2901
                line = line[:-1] + lines[number].strip()  # noqa: PLW2901
            found.append(Command(block.page, block.line + 1 + number, _without_comment(line[2:])))
    return found


def _without_comment(line: str) -> str:
    return re.sub(r"\s+# .*$", "", line)
