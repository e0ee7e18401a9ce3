"""Fingerprints, manifests and the lock of sources."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neuroscope import manifest
from neuroscope.errors import ArtefactError
from neuroscope.manifest import IDENTITY, FileEntry, Fingerprint, Manifest, SourcesLock
from neuroscope.sources import Resolved

MADE_BY = Fingerprint(
    model="hf://org/model",
    model_revision="1" * 40,
    tokenizer_sha256="a" * 64,
    sae="hf://org/sae/params.npz",
    sae_sha256="b" * 64,
    layer=20,
    d_in=2304,
    d_sae=16384,
    corpus_sha256="c" * 64,
    sweep={"batch": 16, "torch": "2.13.0"},
    package_version="0.1.0",
)


def test_a_fingerprint_survives_its_json() -> None:
    assert Fingerprint.from_json(MADE_BY.to_json()) == MADE_BY
    assert Fingerprint.from_dict(json.loads(MADE_BY.to_json())) == MADE_BY


def test_equal_fingerprints_are_equal_text() -> None:
    turned = dataclasses.replace(MADE_BY, sweep={"torch": "2.13.0", "batch": 16})
    assert turned.to_json() == MADE_BY.to_json()


@pytest.mark.parametrize("key", IDENTITY)
def test_every_part_of_identity_is_told_by_name(key: str) -> None:
    other = dataclasses.replace(MADE_BY, **{key: "another"})
    (sentence,) = MADE_BY.mismatches(other)
    assert sentence.endswith("in use is another")


def test_a_mismatch_is_a_sentence_with_both_values() -> None:
    other = dataclasses.replace(MADE_BY, layer=12)
    assert MADE_BY.mismatches(other) == ["layer: made with 20, in use is 12"]


def test_equal_width_is_not_identity() -> None:
    other = dataclasses.replace(MADE_BY, sae_sha256="d" * 64)
    assert other.d_sae == MADE_BY.d_sae
    assert MADE_BY.mismatches(other) == [f"SAE file: made with {'b' * 64}, in use is {'d' * 64}"]


def test_place_corpus_and_sweep_are_no_part_of_identity_but_can_be_asked_for() -> None:
    other = dataclasses.replace(MADE_BY, sae="/copy/params.npz", corpus_sha256=None, sweep={})
    assert MADE_BY.mismatches(other) == []
    assert len(MADE_BY.mismatches(other, keys=["sae", "corpus_sha256", "sweep"])) == 3


def test_every_field_has_a_name_for_messages() -> None:
    assert set(manifest._WORDS) == {field.name for field in dataclasses.fields(Fingerprint)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "not of this version .differs in: list"),
        ('{"layer": 1}', "not of this version .differs in: corpus_sha256, d_in"),
    ],
)
def test_a_text_that_is_no_fingerprint_is_refused(text: str, words: str) -> None:
    with pytest.raises(ArtefactError, match=words):
        Fingerprint.from_json(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results.duckdb").write_bytes(b"rows")
    (tmp_path / "stats.json").write_bytes(b"{}")
    Manifest.of(tmp_path, MADE_BY, {"stats.json": None, "results.duckdb": 4}).write(
        tmp_path / "manifest.json"
    )
    return tmp_path


def test_a_manifest_survives_its_file(folder: Path) -> None:
    found = Manifest.read(folder / "manifest.json")
    assert found.fingerprint == MADE_BY
    assert found.files["results.duckdb"] == FileEntry(hashlib.sha256(b"rows").hexdigest(), 4)
    assert found.files["stats.json"].rows is None
    found.check(folder)


def test_two_writings_of_a_manifest_are_the_same_bytes(folder: Path) -> None:
    first = (folder / "manifest.json").read_bytes()
    Manifest.of(folder, MADE_BY, {"results.duckdb": 4, "stats.json": None}).write(folder / "manifest.json")
    assert (folder / "manifest.json").read_bytes() == first


def test_a_changed_or_missing_file_is_named(folder: Path) -> None:
    found = Manifest.read(folder / "manifest.json")
    (folder / "stats.json").write_bytes(b"{ }")
    with pytest.raises(
        ArtefactError,
        match=r"stats.json is not the file that manifest.json describes.*Delete it, then make it anew",
    ):
        found.check(folder)
    found.check(folder, ["results.duckdb"])
    (folder / "results.duckdb").unlink()
    with pytest.raises(ArtefactError, match=r"results.duckdb is missing. Make the results anew"):
        found.check(folder)
    with pytest.raises(ArtefactError, match=r"never.made is missing"):
        found.check(folder, ["never.made"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "manifest.json is missing. Make the results with"),
        ("{", "manifest.json cannot be read.*Delete it"),
        ("[]", "manifest.json must hold an object, found a list"),
        ("{}", "manifest.json is not a manifest"),
        ('{"files": {"a": {"md5": "1"}}, "fingerprint": {}}', "manifest.json is not a manifest"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ArtefactError, match=words):
        Manifest.read(tmp_path / "manifest.json")


def test_the_lock_records_nothing_about_paths(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    lock = SourcesLock(tmp_path / "sources.lock.json")
    assert lock.resolve(str(tmp_path / "model")).path == tmp_path / "model"
    assert lock.revisions() == {}
    assert not lock.path.exists()


def test_rules_that_run_side_by_side_lose_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub itself is tested in tests/sources; here only the record."""

    def at_a_commit(uri: str, **_: object) -> Resolved:
        return Resolved(tmp_path, uri, hashlib.sha1(uri.encode(), usedforsecurity=False).hexdigest(), None)

    monkeypatch.setattr(manifest, "resolve", at_a_commit)
    lock = SourcesLock(tmp_path / "results" / "sources.lock.json")
    uris = [f"hf://org/model-{i}" for i in range(20)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lock.resolve, uris))
    assert lock.revisions() == {uri: resolved.revision for uri, resolved in zip(uris, found, strict=True)}


def test_a_lock_that_is_no_json_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sources.lock.json").write_text("{")
    with pytest.raises(ArtefactError, match="Delete it: the revisions are then resolved anew"):
        SourcesLock(tmp_path / "sources.lock.json").revisions()


def test_versions_of_what_float_results_depend_on_are_known() -> None:
    assert set(manifest.library_versions()) == {"torch", "transformers", "numpy"}
