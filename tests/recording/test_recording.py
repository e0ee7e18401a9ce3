"""Recordings as files: what is written is read back, and nothing else passes for one."""

from __future__ import annotations

import copy
import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from made_recordings import document, recording

from neuroscope.errors import ArtefactError
from neuroscope.manifest import Fingerprint
from neuroscope.recording import (
    check_recording,
    identity,
    parse_recording,
    read_recording,
    reading,
    write_recording,
)

WORDS = [("<b>", {4: 1.5}), ("é", {5: (2.0, -0.5)}), ("\u2028", {}), ("😀", {31: 3.25}), ("\0", {4: 1e-30})]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    made = recording(WORDS, prompt=[("<s>", {3: 9.0}), (" hi", {4: 1.0})])
    size = write_recording(tmp_path / "a.json", made)
    assert read_recording(tmp_path / "a.json") == made
    assert (tmp_path / "a.json").stat().st_size == size
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_recording_needs_neither_prompt_nor_messages_nor_statistics() -> None:
    bare = document(messages=None, prompt=[])
    for row in bare["features"].values():
        row.update(dict.fromkeys(("firing_rate", "mean_firing", "variance_firing", "max_activation")))
    for row in bare["tokens"]:
        row["fvu"] = None
    found = check_recording(bare, of="it")
    assert (found.messages, found.prompt) == (None, [])


def test_fields_that_are_not_known_are_left_out() -> None:
    more = {**document(), "script": "<script>alert(1)</script>"}
    more["tokens"][0]["onclick"] = "x"
    assert check_recording(more, of="it") == recording()


def test_a_surrogate_without_its_partner_is_replaced(tmp_path: Path) -> None:
    text = json.dumps(document([("\ud800", {})]))
    assert parse_recording(text, of="it").tokens[0]["token"] == "\ufffd"
    write_recording(tmp_path / "a.json", parse_recording(text, of="it"))


WRONG: list[tuple[str, Any, str]] = [
    ("format", "other", 'lacks "format"'),
    ("version", 2, "of version 2; this Neuroscope reads 1"),
    ("version", True, "of version true"),
    ("id", "../../etc/passwd", "'id' is '../../etc/passwd'; it must be small letters"),
    ("id", "a\n", "'id' is"),
    ("created_at", "yesterday", "it must be a time such as"),
    ("title", "x" * 201, "'title' has 201 characters; 200 are read at most"),
    ("title", None, "'title' is null; it must be a text"),
    ("layer", -1, "'layer' is -1"),
    ("layer", 1.5, "'layer' is 1.5"),
    ("layer", True, "'layer' is true"),
    ("width", 0, "'width' is 0"),
    ("width", 10**300, "'width' is 1000"),
    ("fingerprint", {}, "'fingerprint.model' is absent"),
    ("fingerprint", [], "'fingerprint' is a list of 0"),
    ("degraded", "no", "'degraded' is 'no'; it must be a list"),
    ("degraded", [1], "'degraded[0]' is 1"),
    ("messages", [{"role": "root", "content": ""}], "'messages[0].role' is 'root'"),
    ("messages", [{"role": "user"}], "'messages[0].content' is absent"),
    ("prompt", None, "'prompt' is null"),
    ("tokens", [], "'tokens' is empty"),
    ("tokens", [5], "'tokens[0]' is 5; it must be an object"),
    ("completion_id", "a/b", "'completion_id' is 'a/b'"),
    ("finish_reason", "fell asleep", "it must be one of stop, length"),
    ("total_tokens", 3, "'total_tokens' is 3 and there are 2 tokens"),
    ("ranking", {"filter": "best", "threshold": 0.5, "top_k": 1}, "'ranking.filter' is 'best'"),
    ("ranking", {"filter": "none", "threshold": 2, "top_k": 1}, "it must be a number from 0 to 1"),
    ("features", [], "'features' is a list of 0"),
    ("features", {"32": {}}, "'features' has '32'; the SAE has features 0 to 31"),
    ("features", {"04": {}}, "'features' has '04'"),
    ("features", {"-1": {}}, "'features' has '-1'"),
    ("features", {"٣": {}}, "'features' has"),
    ("features", {"9" * 5000: {}}, "'features' has"),
    ("features", {"3": {"label": "x"}}, "'features.3.firing_rate' is absent"),
    ("features", {}, "names feature 3, which 'features' does not have"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG, ids=[f"{n} {str(v)[:30]!r}" for n, v, _ in WRONG])
def test_a_wrong_field_is_named(name: str, value: Any, said: str) -> None:
    with pytest.raises(ArtefactError, match=re.escape(said)) as caught:
        check_recording({**document(), name: value}, of="it.json")
    assert str(caught.value).startswith("it.json is ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", sorted(set(document()) - {"messages"}))
def test_an_absent_field_is_named(name: str) -> None:
    less = document()
    del less[name]
    with pytest.raises(ArtefactError, match=name):
        check_recording(less, of="it")


@pytest.mark.parametrize(
    "triple",
    [
        [3],
        [3, 9.0],
        [3, 9.0, None, 1],
        [True, 9.0, None],
        [3, True, None],
        ["3", 9.0, None],
        [3, 0, None],
        [3, -1.0, None],
        [3, float("nan"), None],
        [3, float("inf"), None],
        [3, 10**400, None],
        [3, 9.0, float("nan")],
        [3, 9.0, False],
        [3, 9.0, "high"],
        [2**40, 9.0, None],
        {"index": 3},
        None,
    ],
    ids=str,
)
def test_a_wrong_activation_is_refused(triple: Any) -> None:
    wrong = document()
    wrong["tokens"][0]["top_features"][0] = triple
    with pytest.raises(ArtefactError, match=r"tokens\[0\]\.top_features holds"):
        check_recording(wrong, of="it")


def test_a_filtered_token_is_no_recording() -> None:
    """A page filters by itself; what was left out could never be seen again."""
    for change in (list.pop, lambda active: active.append(active[0])):
        wrong = copy.deepcopy(document())
        change(wrong["tokens"][0]["top_features"])
        with pytest.raises(ArtefactError, match="has l0 2"):
            check_recording(wrong, of="it")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is not JSON, or cut short"),
        (b"null", "is no recording"),
        (b"[]", "is no recording"),
        (b"[" * 100_000, "is not JSON"),
        (b"<html>", "is not JSON"),
        (b"\xff\xfe\x00", "cannot be read as a recording"),
        (json.dumps(document()).encode()[:-200], "is not JSON, or cut short"),
        (json.dumps(document()).replace("0.125", "NaN").encode(), "holds NaN"),
        (json.dumps(document()).encode("utf-16"), "cannot be read as a recording"),
        (json.dumps(document()).replace("0.125", "9" * 5000).encode(), "is not JSON"),
    ],
    ids=["empty", "null", "list", "deep", "html", "bytes", "cut", "nan", "utf-16", "digits"],
)
def test_a_file_that_is_no_recording_says_so(tmp_path: Path, body: bytes, said: str) -> None:
    (tmp_path / "a.json").write_bytes(body)
    with pytest.raises(ArtefactError, match=said) as caught:
        read_recording(tmp_path / "a.json")
    assert "a.json" in str(caught.value)


def test_a_missing_file_a_folder_and_a_pipe_say_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("nowhere", "There is no recording at"),
        (".", "cannot be read"),
        ("pipe", "no regular"),
    ):
        with pytest.raises(ArtefactError, match=said):
            read_recording(tmp_path / name)


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(reading.MAX_BYTES + 1)
    with pytest.raises(ArtefactError, match="at most are read"):
        read_recording(tmp_path / "a.json")


def test_one_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 100)
    with pytest.raises(ArtefactError, match="100 at most are kept"):
        write_recording(tmp_path / "a.json", recording())
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_recording(tmp_path / "a.json", recording())
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_recording(tmp_path / "a.json", recording(title="another"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert read_recording(tmp_path / "a.json").title == "Where is Paris?"


def test_the_identity_holds_no_path() -> None:
    made = Fingerprint("/home/me/model", None, "0" * 64, "/home/me/sae", "1" * 64, 7, 16, 32)
    found = identity(made, "tiny")
    assert "/home" not in json.dumps(found)
    assert recording(fingerprint=found).fingerprint == found
