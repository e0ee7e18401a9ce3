"""Numbered files of one folder on a plain web server: `batch-0.jsonl.gz`, `batch-1.jsonl.gz` and so on.

Public buckets publish large tables so. Each file is fetched once, checked to its last byte by gzip's own sum, and kept
below `sources/` in the cache; after a kill only what is missing is fetched. What the lines say is not read here.
"""

from __future__ import annotations

import gzip
import json
import shutil
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from neuroscope.errors import SourceError
from neuroscope.sources.content import impostor
from neuroscope.sources.files import cache_dir, held, replace_atomically
from neuroscope.sources.hub_errors import is_cut_connection
from neuroscope.sources.index_errors import disk_error

AT_ONCE = 8
"""Files in flight; a public bucket answers each in some tenths of a second."""
ATTEMPTS = 4
BACKOFF_S = 0.5
"""Seconds before the second attempt, doubled before each later one."""
TIMEOUT_S = 30.0
"""Seconds without a byte after which a connection counts as cut."""
END = "complete.json"
"""Written when the server had no further file: from then on the cache answers alone."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The files of one address, whole and on this machine."""

    files: tuple[Path, ...]
    """In order of number; empty when the server has none."""
    gaps: tuple[int, ...]
    """Numbers below the last that the server does not have: exporters leave out batches without a row."""
    fetched: int
    """How many of `files` were not in the cache before."""


class _Again(Exception):
    """A failure that may pass: a cut connection, a busy server, a file that ends early."""


def fetch_batches(
    address: str, *, title: str, cache: Path | None = None, refresh: bool = False, progress: bool = True
) -> Batches:
    """`{address}/batch-{N}.jsonl.gz` for N from 0 to the last there is, from the cache or fetched.

    The last is the one after which AT_ONCE numbers find nothing. `refresh` fetches all anew and replaces the cached
    ones when all are there. Raises SourceError: offline, unreachable, refused, HTML or damaged after some attempts.
    """
    root = cache or cache_dir()
    folder = batches_folder(address, root)
    try:
        with held(folder.with_name(f".{folder.name}.lock")):
            if refresh:
                return _replace(address, folder, title, progress)
            known = _complete(folder)
            return known if known is not None else _fetch(address, folder, title, progress)
    except OSError as error:
        raise disk_error(error, address, root) from error


def batches_folder(address: str, cache: Path | None = None) -> Path:
    """Where the files of `address` are kept: a folder for the server, one for each part of the path."""
    root = cache or cache_dir()
    parts = urlsplit(address)
    names = [parts.netloc, *(part for part in parts.path.split("/") if part)]
    return root.joinpath(
        "sources", "https", *(quote(name, safe="").replace("..", "%2E%2E") for name in names)
    )


def _complete(folder: Path) -> Batches | None:
    """What `folder` holds when its download once came to the end and nothing was removed since."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        end = json.loads((folder / END).read_text(encoding="utf-8"))
        gaps = tuple(int(number) for number in end["gaps"])
        files = tuple(_file(folder, n) for n in range(int(end["batches"])) if n not in gaps)
        if files and all(file.is_file() for file in files):
            return Batches(files, gaps, 0)
    return None


def _replace(address: str, folder: Path, title: str, progress: bool) -> Batches:
    """Fetches into a new folder, which then takes the old one's place: a failure leaves the old one in use."""
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        found = _fetch(address, new, title, progress)
        if found.files:
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return Batches(tuple(folder / file.name for file in found.files), found.gaps, found.fetched)


def _fetch(address: str, folder: Path, title: str, progress: bool) -> Batches:
    _refuse_offline(address, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.glob(".batch-*.tmp"):  # of a killed run: nobody else writes while the lock is held
        torn.unlink(missing_ok=True)
    before = {file.name for file in folder.glob("batch-*.jsonl.gz")}
    there: dict[int, bool] = {}
    with tqdm(desc=title, unit="batch", disable=not progress, mininterval=1) as bar:
        for number, found in _answers(address, folder):
            there[number] = found
            bar.update(int(found))
    count = max((number for number, found in there.items() if found), default=-1) + 1
    gaps = tuple(number for number in range(count) if not there[number])
    files = tuple(_file(folder, number) for number in range(count) if there[number])
    if files:
        with replace_atomically(folder / END) as temporary:
            temporary.write_text(json.dumps({"batches": count, "gaps": gaps}), encoding="utf-8")
    return Batches(files, gaps, sum(file.name not in before for file in files))


def _answers(address: str, folder: Path) -> Iterator[tuple[int, bool]]:
    """Each number asked for, and whether there is such a batch, until none of the next AT_ONCE is there."""

    def fetch(number: int) -> bool:
        target = _file(folder, number)
        return target.is_file() or _fetch_one(f"{address}/{target.name}", target)

    start, found = 0, [True]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while any(found):
            numbers = range(start, start + AT_ONCE)
            found = []
            try:
                for number, answer in zip(numbers, threads.map(fetch, numbers), strict=True):
                    found.append(answer)
                    yield number, answer
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
            start += AT_ONCE


def _fetch_one(url: str, target: Path) -> bool:
    """Whether there is such a file; it is then at `target`. Raises SourceError when that cannot be found out."""
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(BACKOFF_S * 2 ** (attempt - 1))
        try:
            return _download(url, target)
        except _Again as error:
            reason = str(error)
    raise SourceError(
        f"{url}: {reason}, {ATTEMPTS} times. Run the same command again: what came whole is kept."
    )


def _download(url: str, target: Path) -> bool:
    from huggingface_hub import get_session

    try:
        with get_session().stream(
            "GET", url, headers={"Accept-Encoding": "identity"}, timeout=TIMEOUT_S
        ) as response:
            if not _is_there(url, response):
                return False
            with replace_atomically(target) as temporary:
                with temporary.open("wb") as file:
                    for chunk in response.iter_raw():
                        file.write(chunk)
                _check(url, temporary)
            return True
    except Exception as error:
        if is_cut_connection(error):
            raise _Again(f"the connection failed ({type(error).__name__}: {error})") from error
        raise


def _is_there(url: str, response: Any) -> bool:
    """By the status. A bucket that may not be listed says AccessDenied instead of 404 for what it lacks."""
    status = response.status_code
    if status == 200:
        return True
    if status in (408, 425, 429) or status >= 500:
        raise _Again(f"the server answered with status {status}")
    body = response.read()[:4096]
    if status == 404 or (status == 403 and b"<Code>AccessDenied</Code>" in body):
        return False
    raise SourceError(
        f"{url}: the server answered with status {status} ({_start(body)}). It is no public bucket, or a proxy stands "
        "before it: check neuronpedia.base_url in config.yaml."
    )


def _check(url: str, path: Path) -> None:
    """Raises unless the file is one whole gzip stream: SourceError for something else, _Again for a part of one."""
    if content := impostor(path):
        raise SourceError(f"{url}: got {content}. Check the network's login page and neuronpedia.base_url.")
    with path.open("rb") as file:
        start = file.read(64)
    if start and not b"\x1f\x8b".startswith(start[:2]):
        raise SourceError(
            f"{url}: not a gzip file, it begins with {_start(start)}. Check neuronpedia.base_url in config.yaml."
        )
    try:
        with gzip.open(path) as unpacked:
            while unpacked.read(1 << 20):
                pass
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _Again(f"the file is damaged or ends early ({error})") from error
    if not start:
        raise _Again("the file is empty")


def _refuse_offline(address: str, folder: Path) -> None:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise SourceError(
            f"{address}: not, or not whole, in the cache ({folder}), and HF_HUB_OFFLINE forbids to fetch it. "
            "Run the same command once with HF_HUB_OFFLINE=0."
        )


def _file(folder: Path, number: int) -> Path:
    return folder / f"batch-{number}.jsonl.gz"


def _start(body: bytes) -> str:
    return ascii(body[:60].decode("utf-8", "replace"))
