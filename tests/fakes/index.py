"""A package index on loopback for the real pip, and wheels made on the spot.

`pip_environment` keeps a test away from the user's pip configuration, cache and index.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

from fakes.loopback import Loopback


def make_wheel(
    folder: Path, name: str, version: str, files: dict[str, bytes], *, requires_python: str = ">=3"
) -> Path:
    """A pure Python wheel that holds `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    described = {
        **files,
        f"{stem}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {requires_python}\n"
        ).encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in described.items()
    )
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, content in described.items():
            archive.writestr(inside, content)
        archive.writestr(f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")
    return path


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def pip_environment(index_url: str, folder: Path) -> dict[str, str]:
    """Variables under which pip asks `index_url` once, and nothing else."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index_url,
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONSTRAINT": "",
        "PIP_CACHE_DIR": str(folder / "pip-cache"),
        "PIP_RETRIES": "0",
        "PIP_DEFAULT_TIMEOUT": "10",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NO_PROXY": "127.0.0.1",
    }


class FakeIndex(Loopback):
    """Serves the wheels of a folder; `with FakeIndex(folder) as index: ...`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.downloads: list[str] = []
        """Names of the wheels that were asked for."""
        self.cut_after: int | None = None
        """When set, a wheel's connection is closed after this many bytes."""
        self.published_sha256: str | None = None
        """When set, the hash that the index says its wheels have."""
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple/"


def _handler(index: FakeIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, name = urlsplit(self.path).path.strip("/").partition("/")
            if kind == "simple":
                wheels = sorted(index.folder.glob(f"{name.replace('-', '_')}-*.whl"))
                pin = f"#sha256={index.published_sha256}" if index.published_sha256 else ""
                links = "".join(f'<a href="/files/{wheel.name}{pin}">{wheel.name}</a>' for wheel in wheels)
                self._send(
                    200 if wheels else 404, f"<!doctype html><html><body>{links}</body></html>".encode()
                )
            else:
                index.downloads.append(name)
                self._send(200, (index.folder / name).read_bytes(), cut=index.cut_after)

        def log_message(self, *_: object) -> None:
            """Silence: tests read `index.downloads`."""

        def _send(self, status: int, body: bytes, cut: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if body.startswith(b"<!") else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut])

    return Handler
