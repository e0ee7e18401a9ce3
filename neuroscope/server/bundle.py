"""Several JavaScript modules as one script, so that a page works as a single file: `file://` serves no modules.

Understands the plain way in which the modules of `web/` are written, and refuses the rest by name: imports of the form
`import { a, b as c } from "./x.js";` and `export function|async function|const|class NAME`, each at the beginning of a
line. Each module keeps a scope of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([\w.-]+\.js)";[ \t]*$', re.MULTILINE)
_NAME = re.compile(r"([A-Za-z_$][\w$]*)(?:\s+as\s+([A-Za-z_$][\w$]*))?")
_EXPORT = re.compile(
    r"^export (?=(?:async function\*?|function\*?|const|class) *([A-Za-z_$][\w$]*))", re.MULTILINE
)
_REFUSED = re.compile(r"^[ \t]*(?:import|export)\b.*$|\bimport\s*[(.].*$|</script|<!--", re.MULTILINE)


def bundled(entry: str, read: Callable[[str], str]) -> str:
    """The script of `entry` with all that it imports; `read` gives a module's source by its file name.

    For a `<script type="module">`: the entry may await. Raises ValueError for what is written otherwise.
    """
    parts: dict[str, str] = {}
    _add(entry, read, parts, ())
    return "".join(parts.values())


def _add(name: str, read: Callable[[str], str], parts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' > '.join((*above, name))}")
    if name in parts:
        return
    source = read(name)
    heads = []
    for found in _IMPORT.finditer(source):
        names, imported = found[1], found[2]
        _add(imported, read, parts, (*above, name))
        heads.append(f"const {{ {', '.join(_bound(names, name))} }} = {_scope(imported)};\n")
    exports = _EXPORT.findall(source)
    code = _EXPORT.sub("", _IMPORT.sub("", source))
    if refused := _REFUSED.search(code):
        raise ValueError(f"{name} cannot be put into one file with others: {refused[0].strip()[:80]}")
    body = "".join([*heads, code.strip("\n"), "\n"])
    if above:
        parts[name] = f"const {_scope(name)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"
    else:
        parts[name] = f"{{\n{body}}}\n"


def _bound(names: str, module: str) -> list[str]:
    """`a, b as c` of an import as the parts of a pattern, `a, b: c`."""
    bound = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"{module} imports {name!r}, which is no name")
        bound.append(f"{found[1]}: {found[2]}" if found[2] else found[1])
    return bound


def _scope(name: str) -> str:
    """The variable that holds a module's exports."""
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
