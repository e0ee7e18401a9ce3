"""A model hub on loopback, enough of it for the real client: listings, redirects, hashes, ranges and
refusals.

`FakeHub` is a context manager; `HF_ENDPOINT` set to its `url` makes the client talk to it. Faults are
scripted per file: a connection that is cut, other bytes, an HTML page, a status.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from fakes.loopback import Loopback

COMMIT = "1" * 40
LFS_SUFFIXES = (".safetensors", ".npz", ".parquet", ".bin", ".gguf")


@dataclass
class Repository:
    """A repository: the files of each commit, and who may read them."""

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str]
    gated: bool = False
    private: bool = False
    listed: bool = True
    """Whether a gated repository shows its listing to everybody."""
    token: str | None = None
    """The token that opens a gated or private repository."""

    def commit_of(self, revision: str) -> str | None:
        return self.branches.get(revision) or (revision if revision in self.commits else None)


@dataclass
class Fault:
    """What happens instead of a proper answer, the next `times` times the bytes are asked for."""

    kind: str
    """cut (close after `at` bytes), reset (the same, abruptly), stall (send `at` bytes, then nothing until the
    client leaves), bytes (send `body`), or status (answer `status`).
    """
    times: int = 1
    at: int = 0
    body: bytes = b""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answer of a status."""


@dataclass
class Request:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)


class FakeHub(Loopback):
    """The hub; `with FakeHub() as hub: ...`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.page: bytes | None = None
        """When set, every answer is this HTML page with status 200, as behind a hotel's login."""
        self.invalid_tokens: set[str] = set()
        self.accounts: dict[str, str] = {}
        """Token -> the name of its account, for who asks whose it is."""
        self.xet = False
        """Whether large files are offered in the hub's own storage (Xet) too."""
        self.stalled = threading.Event()
        """Set when a download stands still half-way."""
        self.sent: dict[str, int] = {}
        """Bytes of bodies that were put on the wire, by the request's path."""
        self._faults: dict[str, Fault] = {}
        super().__init__(_handler(self))

    @property
    def cdn(self) -> str:
        """Where large files lie: another host, as in life, so the client must not send its token there."""
        return f"http://localhost:{self.port}"

    def add(
        self,
        repo: str,
        files: dict[str, bytes],
        *,
        dataset: bool = False,
        commit: str = COMMIT,
        **access: Any,
    ) -> None:
        """Publishes `files` as a commit that `main` points at; `access` are fields of Repository."""
        kind = "datasets" if dataset else "models"
        found = self.repositories.setdefault(f"{kind}/{repo}", Repository({}, {}, **access))
        found.commits[commit] = files
        found.branches["main"] = commit

    def fault(self, path: str, kind: str, **how: Any) -> None:
        """Scripts a fault for the bytes of the file whose path ends in `path`."""
        self._faults[path] = Fault(kind, **how)

    def take_fault(self, path: str) -> Fault | None:
        for suffix, fault in self._faults.items():
            if path.endswith(suffix) and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    def asked(self, part: str, method: str = "GET") -> list[Request]:
        """Requests whose path contains `part`."""
        return [request for request in self.requests if part in request.path and request.method == method]


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _is_lfs(path: str) -> bool:
    return path.endswith(LFS_SUFFIXES)


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            """Silence: tests read `hub.requests`."""

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(Request(self.command, path, dict(self.headers)))
            if hub.page is not None:
                self._send(200, hub.page, {"Content-Type": "text/html"})
                return
            try:
                self._route(path)
            except _Refusal as refusal:
                headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
                self._send(refusal.status, json.dumps({"error": refusal.message}).encode(), headers)

        def _route(self, path: str) -> None:
            if path == "/api/whoami-v2":
                self._whose_token()
            elif found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/auth-check", path):
                self._open(found[1], found[2], "main")
                self._send(200, b"OK", {"Content-Type": "text/plain"})
            elif found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                self._describe(*self._open(found[1], found[2], found[3] or "main"), found[2])
            elif found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)/?.*", path):
                self._list(*self._open(found[1], found[2], found[3]))
            elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                kind = "datasets" if found[1] else "models"
                self._resolve(*self._open(kind, found[2], found[3]), found[4])
            elif path == "/xet":
                access = {"X-Xet-Cas-Url": f"{hub.url}/storage", "X-Xet-Access-Token": "token"}
                self._send(200, b"", {**access, "X-Xet-Token-Expiration": "4102444800"})
            elif found := re.fullmatch(r"/cdn/([0-9a-f]{64})/(.+)", path):
                self._bytes(found[2], self._content(found[1]), {})
            else:
                raise _Refusal(404, "NotFound", f"no such route: {path}")

        def _open(self, kind: str, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
            repository = hub.repositories.get(f"{kind}/{name}")
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            if token in hub.invalid_tokens:
                raise _Refusal(401, "", "Invalid credentials in Authorization header")
            if repository is None or (repository.private and token != repository.token):
                raise _Refusal(401 if token is None else 404, "RepoNotFound", "Repository not found")
            # A gated repository shows its description to everybody, its files to those on the list.
            asks_for_files = "/resolve/" in self.path or self.path.endswith("/auth-check")
            closed = asks_for_files or not repository.listed
            if repository.gated and closed and token != repository.token:
                raise _Refusal(401 if token is None else 403, "GatedRepo", "Access is restricted")
            commit = repository.commit_of(revision)
            if commit is None:
                raise _Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return commit, repository.commits[commit]

        def _whose_token(self) -> None:
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
            if token in hub.invalid_tokens or token not in hub.accounts:
                raise _Refusal(401, "", "Invalid username or password.")
            access = {"accessToken": {"displayName": "a token", "role": "read"}, "type": "access_token"}
            self._json({"type": "user", "id": "0", "name": hub.accounts[token], "orgs": [], "auth": access})

        def _describe(self, commit: str, files: dict[str, bytes], name: str) -> None:
            siblings = [{"rfilename": path} for path in files]
            self._json({"_id": "0", "id": name, "sha": commit, "private": False, "siblings": siblings})

        def _list(self, _commit: str, files: dict[str, bytes]) -> None:
            folders = {
                "/".join(parts[:depth])
                for parts in (path.split("/") for path in files)
                for depth in range(1, len(parts))
            }
            entries: list[dict[str, Any]] = [
                {"type": "directory", "path": path, "oid": git_sha1(path.encode()), "size": 0}
                for path in sorted(folders)
            ]
            for path, content in files.items():
                entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content)}
                entry["oid"] = git_sha1(content)
                if _is_lfs(path):
                    sha256 = hashlib.sha256(content).hexdigest()
                    entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
                entries.append(entry)
            self._json(entries)

        def _resolve(self, commit: str, files: dict[str, bytes], path: str) -> None:
            if path not in files:
                raise _Refusal(404, "EntryNotFound", "Entry not found")
            content = files[path]
            headers = {"X-Repo-Commit": commit}
            if not _is_lfs(path):
                self._bytes(path, content, {**headers, "ETag": f'"{git_sha1(content)}"'})
                return
            sha256 = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-ETag": f'"{sha256}"', "X-Linked-Size": str(len(content))}
            if hub.xet:
                headers |= {"X-Xet-Hash": sha256, "X-Xet-Refresh-Route": f"{hub.url}/xet"}
            self._send(302, b"", {**headers, "Location": f"{hub.cdn}/cdn/{sha256}/{path}"})

        def _content(self, sha256: str) -> bytes:
            for repository in hub.repositories.values():
                for files in repository.commits.values():
                    for content in files.values():
                        if hashlib.sha256(content).hexdigest() == sha256:
                            return content
            raise _Refusal(404, "NotFound", "no such blob")

        def _bytes(self, path: str, content: bytes, headers: dict[str, str]) -> None:
            fault = hub.take_fault(path) if self.command == "GET" else None
            if fault and fault.kind == "status":
                self._send(fault.status, b"scripted", fault.headers)
                return
            if fault and fault.kind == "bytes":
                content = fault.body
            start = 0
            if found := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
                start = int(found[1])
                headers = {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            cut = fault.at if fault and fault.kind in ("cut", "reset", "stall") else None
            self._send(206 if start else 200, content[start:], {"Accept-Ranges": "bytes", **headers}, cut=cut)
            if fault and fault.kind == "stall":
                hub.stalled.set()
                self.connection.recv(1)  # ends when the client is gone
            if fault and fault.kind == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        def _json(self, tree: Any) -> None:
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: dict[str, str], *, cut: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                written = body if cut is None else body[:cut]
                self.wfile.write(written)
                self.wfile.flush()
                path = unquote(urlsplit(self.path).path)
                hub.sent[path] = hub.sent.get(path, 0) + len(written)
            if cut is not None:
                self.close_connection = True

    return Handler
