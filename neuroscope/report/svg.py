"""Makes an SVG file of a matplotlib figure: one that reads well alone, inside a page, in the dark and aloud.

Ids are the plot's own, so that several fit into one page; what matplotlib writes as `style` becomes attributes, which a
strict Content-Security-Policy lets through; ink is the colour of the text around it.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree

from matplotlib import style as styles
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK = "#010203"
"""Stands for the colour of text in what matplotlib draws."""
FONT = "system-ui, sans-serif"
NAMESPACE = "http://www.w3.org/2000/svg"
LINK = "http://www.w3.org/1999/xlink"
ALONE = "svg{color:#444}@media (prefers-color-scheme:dark){svg{color:#ccc}}"
"""Style of a file that stands alone; in a page the page decides."""
STYLE = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout everywhere
    "font.size": 10,
    "text.parse_math": False,  # a source or stratum may be called `$x$`
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),  # that of what is behind
    "axes.unicode_minus": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "legend.fontsize": 9,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawn plot; `name` is that of its file."""

    name: str
    title: str
    description: str
    """What it shows, in words and numbers: for those who do not see it."""
    alone: bytes
    """A file that stands alone."""
    inside: str
    """An element for an HTML page."""


def render(
    name: str, title: str, description: str, size: tuple[float, float], draw: Callable[[Figure], None]
) -> Plot:
    """`draw` fills a figure of `size` inches. The same numbers give the same bytes."""
    with styles.context(["default", {**STYLE, "svg.hashsalt": name}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts have it
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        written = io.BytesIO()
        FigureCanvasSVG(figure)
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(written.getvalue())
    _clean(root, name)
    _describe(root, name, plain(title), plain(description))
    inside = ElementTree.tostring(root, encoding="unicode")
    ElementTree.SubElement(root, f"{{{NAMESPACE}}}style").text = ALONE
    alone = b"<?xml version='1.0' encoding='utf-8'?>\n" + ElementTree.tostring(root, encoding="utf-8")
    return Plot(name, title, description, alone + b"\n", inside)


def plain(text: str) -> str:
    """`text` without characters that XML cannot hold or that turn the direction of writing."""
    kinds = {"Cc": "\N{REPLACEMENT CHARACTER}", "Cs": "\N{REPLACEMENT CHARACTER}", "Cn": ""}
    turning = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"
    return "".join("" if c in turning else kinds.get(unicodedata.category(c), c) for c in text)


def _clean(root: ElementTree.Element, name: str) -> None:
    for parent in [*root.iter()]:
        for child in [*parent]:
            if child.tag in (f"{{{NAMESPACE}}}style", f"{{{NAMESPACE}}}metadata"):
                parent.remove(child)
    for node in root.iter():
        for key, value in _attributes(node.attrib.pop("style", "")):
            node.set(key, value)
        if "id" in node.attrib:
            node.set("id", f"{name}-{node.get('id')}")
        for key, value in [*node.attrib.items()]:
            own = re.sub(r"(?<=url\()#" if "href" not in key else "^#", f"#{name}-", value)
            node.set(key, "currentColor" if value == INK else own)
    root.set("stroke-linejoin", "round")
    root.set("font-family", FONT)


def _attributes(style: str) -> list[tuple[str, str]]:
    """Presentation attributes of a `style`; the font's family is the root's."""
    found = []
    for entry in filter(None, map(str.strip, style.split(";"))):
        key, _, value = (part.strip() for part in entry.partition(":"))
        if key == "font":
            size = re.search(r"([\d.]+)px", value)
            found.append(("font-size", size[1] if size else "10"))
        elif key != "font-family":
            found.append((key, value))
    return found


def _describe(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        kind = "title" if tag == "title" else "description"
        node = ElementTree.Element(f"{{{NAMESPACE}}}{tag}", {"id": f"{name}-{kind}"})
        node.text = text
        root.insert(place, node)


ElementTree.register_namespace("", NAMESPACE)
ElementTree.register_namespace("xlink", LINK)
