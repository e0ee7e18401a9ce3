"""The corpus: every kind of file is read or counted as skipped with its reason, and nothing else happens."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import sysconfig
import threading
from pathlib import Path

import polars as pl
import pytest
import zstandard

from neuroscope import corpus
from neuroscope.corpus import TextSource, build, document_id, read, split
from neuroscope.corpus.found import Skipped
from neuroscope.corpus.readers import read_files
from neuroscope.errors import CorpusError

LINE = "The river runs through the old town and under a bridge of stone."


def made(path: Path, out: Path, **named: object) -> tuple[pl.DataFrame, dict[str, object]]:
    source = TextSource("mine", "encyclopedia", path, "files", licence="none")
    report = build([source], out / "corpus.parquet", **named)  # type: ignore[arg-type]
    return read(out / "corpus.parquet"), report["sources"][0]


def test_documents_are_in_order_of_their_content_hash(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text(f"{LINE} {number}")
    frame, report = made(folder, tmp_path)

    assert frame["doc_id"].to_list() == sorted(document_id(f"{LINE} {number}") for number in range(5))
    assert set(frame["stratum"]) == {"encyclopedia"}
    assert report == {
        "name": "mine",
        "stratum": "encyclopedia",
        "licence": "none",
        "documents": 5,
        "characters": 5 * (len(LINE) + 2),
        "skipped": {},
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", LINE.encode()),
        ("a.md", b"\xef\xbb\xbf" + LINE.encode()),
        ("a.txt.gz", gzip.compress(LINE.encode(), mtime=0)),
        ("a.txt.bz2", bz2.compress(LINE.encode())),
        ("a.txt.xz", lzma.compress(LINE.encode())),
        ("a.jsonl.zst", zstandard.compress(json.dumps({"text": LINE}).encode())),
        ("a.jsonl", json.dumps({"id": "1", "text": LINE}).encode() + b"\n\n" + json.dumps(LINE).encode()),
        ("a.json", json.dumps({"key": {"title": "x", "extract": LINE}}).encode()),
        ("a.json", json.dumps([{"content": LINE}]).encode()),
        ("a.csv", f'id,text\n1,"{LINE}"\n'.encode()),
        ("a.tsv", f"id\ttext\n1\t{LINE}\n".encode()),
        ("a.txt", LINE.encode("utf-16")),
    ],
)
def test_each_kind_of_file_gives_its_text(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    frame, _ = made(tmp_path / name, tmp_path)
    assert frame["text"].to_list() == [LINE]


def test_parquet_gives_its_text_column(tmp_path: Path) -> None:
    pl.DataFrame({"id": ["1", "2"], "text": [LINE, None]}).write_parquet(tmp_path / "a.parquet")
    frame, report = made(tmp_path / "a.parquet", tmp_path)
    assert frame["text"].to_list() == [LINE]
    assert report["skipped"] == {"null": 1}


def test_what_cannot_be_read_is_counted_with_its_reason_and_never_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "good.txt").write_text(LINE)
    (folder / "same.txt").write_text(LINE)
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("one")
    (folder / "binary.txt").write_bytes(b"\x7fELF\0\0\0")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "cut.txt.gz").write_bytes(gzip.compress(os.urandom(5000))[:2000])
    (folder / "lies.txt.zst").write_bytes(b"not zstandard")
    (folder / "bad.jsonl").write_text('{"text": ')
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "bad.parquet").write_bytes(b"PAR1 and no more")
    (folder / "gone").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "up").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "pipe.txt")

    worker = threading.Thread(target=lambda: made(folder, tmp_path), daemon=True)
    worker.start()
    worker.join(30)

    assert not worker.is_alive(), "reading the folder hangs"
    report = json.loads((tmp_path / "corpus.json").read_text())["sources"][0]
    assert report["documents"] == 1
    assert report["skipped"] == {
        "duplicate": 1,
        "empty": 1,
        "too short": 1,
        "binary": 1,
        "suffix .png": 1,
        "damaged or unreadable": 3,
        "invalid JSON": 2,
        "broken link": 2,
        "link to a folder": 1,
        "not a regular file": 1,
    }


def test_bytes_of_an_older_encoding_and_lone_surrogates_become_text(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes((LINE + " caf\xe9").encode("cp1252"))
    (tmp_path / "surrogate.jsonl").write_text('{"text": "' + LINE + ' \\ud83d end"}')
    (tmp_path / "zwj.txt").write_text(LINE + " 👩‍👩‍👧 \u202eright to left\u202c")
    frame, _ = made(tmp_path, tmp_path)
    texts = sorted(frame["text"])
    assert texts == sorted([f"{LINE} café", f"{LINE} ? end", f"{LINE} 👩‍👩‍👧 \u202eright to left\u202c"])


def test_one_line_of_ten_megabytes_is_cut_without_losing_a_word(tmp_path: Path) -> None:
    words = " ".join(f"word{i}" for i in range(1_200_000))
    (tmp_path / "line.txt").write_text(words)
    frame, _ = made(tmp_path / "line.txt", tmp_path)
    assert frame["text"].str.len_chars().max() <= 2000  # type: ignore[operator]
    assert sorted(" ".join(frame["text"]).split()) == sorted(words.split())


def test_a_text_is_cut_at_blank_lines_before_lines_before_spaces_and_keeps_indentation() -> None:
    code = "def f():\n    return 1\n\n\ndef g():\n    return 2"
    assert list(split(code, 30)) == ["def f():\n    return 1", "def g():\n    return 2"]
    assert list(split("    if x:\n        y\n        z", 18)) == ["    if x:", "        y", "        z"]
    assert list(split("aaaa bbbb cccc", 10)) == ["aaaa bbbb", "cccc"]
    assert list(split("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5]
    assert list(split(" \n\n ", 10)) == []


def test_max_documents_takes_a_fair_sample_not_the_first_files(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(50):
        (folder / f"{number:02}.txt").write_text(f"{LINE} {number}")
    source = TextSource("mine", "code", folder, "files", max_documents=10)
    report = build([source], tmp_path / "c.parquet")["sources"][0]
    expected = sorted(document_id(f"{LINE} {number}") for number in range(50))[:10]
    assert read(tmp_path / "c.parquet")["doc_id"].to_list() == expected
    assert report["skipped"] == {"over max_documents": 40}


def test_wikitext_lines_are_put_together_as_articles(tmp_path: Path) -> None:
    rows = [
        " = Oslo = \n",
        " Oslo is the capital of Norway . \n",
        " = = History = = \n",
        " Long ago . \n",
        " = Rome = \n",
    ]
    rows.append(" Rome is the capital of Italy . \n")
    pl.DataFrame({"text": rows}).write_parquet(tmp_path / "w.parquet")
    build([TextSource("w", "encyclopedia", tmp_path, "wikitext")], tmp_path / "out" / "c.parquet")
    texts = sorted(read(tmp_path / "out/c.parquet")["text"])
    assert [text.split("\n")[0].strip() for text in texts] == ["= Oslo =", "= Rome ="]
    assert "History" in texts[0]


def test_dialogues_become_one_document_each(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(
        "conversations:\n- - How are you today?\n  - I am fine, thanks.\n- [Hello there, "
        "good friend, Yes and no]\n"
    )
    build([TextSource("d", "conversation", tmp_path, "dialogues")], tmp_path / "c.parquet")
    assert sorted(read(tmp_path / "c.parquet")["text"]) == [
        "Hello there\ngood friend\nYes and no",
        "How are you today?\nI am fine, thanks.",
    ]


def test_the_standard_library_is_code_that_parses() -> None:
    texts = [t for t in corpus.READERS["stdlib"](Path(sysconfig.get_path("stdlib"))) if isinstance(t, str)]
    assert any("class OrderedDict" in text for text in texts)
    assert len(texts) > 300


def test_an_empty_corpus_says_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(CorpusError, match=r"mine: \{'suffix .png': 1\}"):
        made(tmp_path, tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nowhere does not exist.*--corpus-path"):
        made(tmp_path / "nowhere", tmp_path)


def test_a_file_that_is_not_a_corpus_says_how_to_build_one(tmp_path: Path) -> None:
    (tmp_path / "corpus.parquet").write_text("hello")
    with pytest.raises(CorpusError, match="neuroscope corpus build"):
        read(tmp_path / "corpus.parquet")


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINE)
    (tmp_path / "b.txt").write_text(LINE + " again")
    first = made(tmp_path / "a.txt", tmp_path / "1")[1], (tmp_path / "1/corpus.parquet").read_bytes()
    second = made(tmp_path / "a.txt", tmp_path / "2")[1], (tmp_path / "2/corpus.parquet").read_bytes()
    assert first == second


@pytest.mark.parametrize("content", ["null", "17", "true", "[null, 3, []]", "{}", '{"a": null}', '"\u2028"'])
def test_json_without_text_is_skipped_and_counted(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    found = list(read_files(tmp_path / "a.json"))
    assert all(isinstance(each, Skipped) or not each.strip() for each in found)


def test_a_line_separator_inside_a_json_string_ends_no_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"text": "one\u2028two"}, ensure_ascii=False) + "\r\n", newline=""
    )
    assert list(read_files(tmp_path / "a.jsonl")) == ["one\u2028two"]


def test_every_frame_of_a_zst_file_is_read_and_a_cut_one_is_counted(tmp_path: Path) -> None:
    frames = b"".join(zstandard.compress(f"{LINE} {number}\n".encode()) for number in range(4))
    (tmp_path / "whole.txt.zst").write_bytes(frames)
    assert list(read_files(tmp_path / "whole.txt.zst")) == ["".join(f"{LINE} {n}\n" for n in range(4))]
    packed = zstandard.compress(os.urandom(300_000).hex().encode())
    for share in (0.5, 0.999):
        (tmp_path / "cut.txt.zst").write_bytes(packed[: int(len(packed) * share)])
        assert list(read_files(tmp_path / "cut.txt.zst")) == [Skipped("damaged or unreadable")]


def test_a_corrupt_gzip_body_is_counted(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LINE.encode() * 1000))
    packed[20] ^= 0xFF
    (tmp_path / "a.txt.gz").write_bytes(packed)
    assert list(read_files(tmp_path / "a.txt.gz")) == [Skipped("damaged or unreadable")]


def test_a_parquet_name_is_a_name_and_no_pattern(tmp_path: Path) -> None:
    for name, text in (("data[1]", "first"), ("data1", "second")):
        pl.DataFrame({"text": [text]}).write_parquet(tmp_path / f"{name}.parquet")
    assert sorted(map(str, read_files(tmp_path))) == ["first", "second"]


def test_a_long_text_is_split_in_time_that_grows_with_it_alone() -> None:
    text = "word " * 2_000_000
    pieces = list(split(text, 2000))
    assert " ".join(pieces) == text.rstrip()
