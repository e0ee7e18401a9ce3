"""Which files are read and in which encoding: nothing is left out in silence, nothing becomes other letters."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from neuroscope.corpus import files, readers
from neuroscope.corpus.found import Found, Skipped
from neuroscope.corpus.readers import read_files
from neuroscope.errors import CorpusError

LINE = "The river runs through the old town and under a bridge of stone."
FRENCH = "L'été dernier, à la gare, un garçon a mangé une pêche sous un chêne. " * 20


def found(folder: Path, content: bytes, name: str = "a.txt") -> list[Found]:
    (folder / name).write_bytes(content)
    return list(read_files(folder / name))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_text_is_the_same_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    assert found(tmp_path, FRENCH.encode(encoding)) == [FRENCH]


def test_an_encoding_that_is_guessed_is_counted_as_a_guess(tmp_path: Path) -> None:
    assert found(tmp_path, FRENCH.encode("cp1252")) == [Skipped("taken for Windows-1252"), FRENCH]


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_either_order_of_bytes_is_read_after_its_mark(mark: str, tmp_path: Path) -> None:
    assert found(tmp_path, ("\ufeff" + FRENCH).encode(mark)) == [FRENCH]


def test_one_bad_byte_leaves_the_rest_of_a_utf_8_file_as_it_is(tmp_path: Path) -> None:
    content = FRENCH.encode() + b"\xff" + FRENCH.encode()
    assert found(tmp_path, content) == [Skipped("damaged characters replaced"), f"{FRENCH}\ufffd{FRENCH}"]


def test_a_character_cut_by_a_block_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 7)
    assert found(tmp_path, ("é" * 50 + "河" * 50 + "👩" * 50).encode()) == ["é" * 50 + "河" * 50 + "👩" * 50]
    assert found(tmp_path, FRENCH.encode()[:-3] + "é".encode()[:1])[0] == Skipped(
        "damaged characters replaced"
    )


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Река течёт через старый город и под каменным мостом. "),
        ("gbk", "河流穿过老城,从一座石桥下流过。"),
        ("euc-jp", "川は古い町を通り、石橋の下を流れる。"),
        ("shift-jis", "川は古い町を通り、石橋の下を流れる。"),
        ("koi8-r", "Река течёт через старый город. "),
    ],
)
def test_an_encoding_that_cannot_be_told_is_refused_and_not_read_as_other_letters(
    encoding: str, text: str, tmp_path: Path
) -> None:
    assert found(tmp_path, (text * 20).encode(encoding)) == [Skipped("unknown encoding")]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.md"])
def test_binary_files_are_counted_whatever_their_name_and_wherever_the_zero_is(
    name: str, tmp_path: Path
) -> None:
    assert found(tmp_path, os.urandom(100) + b"\0", name) == [Skipped("binary")]
    assert found(tmp_path, LINE.encode() * 50_000 + b"\0", name) == [Skipped("binary")]


def test_hidden_and_linked_things_are_counted(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine / ".git", mine / ".cache", mine / "sub" / ".venv", mine / "named.txt", other):
        folder.mkdir(parents=True)
    for file in (".git/a.txt", ".hidden.txt", "named.txt/b.txt", "sub/c.txt"):
        (mine / file).write_text(file)
    (other / "d.txt").write_text("linked")
    (mine / "d.txt").symlink_to(other / "d.txt")
    (mine / "elsewhere").symlink_to(other, target_is_directory=True)
    (mine / "sub" / "up").symlink_to(mine, target_is_directory=True)

    results = list(read_files(mine))

    reasons = sorted(each.reason for each in results if isinstance(each, Skipped))
    assert reasons == sorted(["hidden folder"] * 3 + ["hidden file"] + ["link to a folder"] * 2)
    assert sorted(each for each in results if isinstance(each, str)) == [
        "linked",
        "named.txt/b.txt",
        "sub/c.txt",
    ]
    assert list(read_files(mine / ".git")) == [".git/a.txt"]  # named by the user, it is wanted


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_at_once(make: object, tmp_path: Path) -> None:
    make(tmp_path / "a.txt")  # type: ignore[operator]
    assert list(read_files(tmp_path / "a.txt")) == [Skipped("not a regular file")]
    assert list(read_files(tmp_path)) == [Skipped("not a regular file")]


def test_files_and_folders_without_permission_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text(LINE)
    (tmp_path / "b.txt").write_text(LINE)
    opened = Path.open

    def refuse(path: Path, *args: object) -> object:
        if path.name == "a.txt":
            raise PermissionError(13, "Permission denied")
        return opened(path, *args)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    assert list(read_files(tmp_path)) == [Skipped("not readable"), LINE]


def test_a_path_behind_a_closed_folder_says_how_to_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(CorpusError, match="chmod"):
        list(read_files(tmp_path))


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv"])
def test_a_packed_file_that_is_cut_gives_nothing(packed: str, kind: str, tmp_path: Path) -> None:
    whole = PACKERS[packed](b"text\n" + b"".join(os.urandom(8).hex().encode() + b"\n" for _ in range(50_000)))
    for share in (0.3, 0.9, 0.999):
        cut = whole[: int(len(whole) * share)]
        assert found(tmp_path, cut, f"a{kind}{packed}") == [Skipped("damaged or unreadable")]


def test_a_file_larger_than_the_limit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1000)
    assert found(tmp_path, gzip.compress(b"a" * 1001), "a.txt.gz") == [Skipped("larger than 2 GiB")]
    assert found(tmp_path, gzip.compress(b"a" * 1000), "a.txt.gz") == ["a" * 1000]


def test_a_long_text_comes_in_stretches_cut_at_blank_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "BLOCK_CHARS", 100)
    text = "\n\n".join(f"paragraph {number}\nof two lines" for number in range(50))
    stretches = [each for each in found(tmp_path, text.encode()) if isinstance(each, str)]
    assert "".join(stretches) == text
    assert len(stretches) > 5
    assert all(stretch.endswith("\n\n") for stretch in stretches[:-1])


READ = """
import resource, sys
from pathlib import Path
from neuroscope.corpus.readers import read_files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = sum(len(text) for text in read_files(Path(sys.argv[1])))
print(size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("name", "packed", "head", "row"),
    [
        ("a.txt", bytes, "", "{n} {text}\n"),
        ("a.jsonl.zst", zstandard.compress, "", '{{"text": "{n} {text}"}}\n'),
        ("a.csv.gz", lambda raw: gzip.compress(raw, 1), "id,text\n", '1,"{n} {text}"\n'),
    ],
)
def test_a_large_file_is_read_without_being_held(
    name: str, packed: Callable[[bytes], bytes], head: str, row: str, tmp_path: Path
) -> None:
    text = LINE * 20
    (tmp_path / name).write_bytes(
        packed((head + "".join(row.format(n=n, text=text) for n in range(80_000))).encode())
    )
    command = [sys.executable, "-c", READ, tmp_path / name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size, grown = map(int, done.stdout.split())
    assert size > len(text) * 80_000 > 100_000_000
    assert grown < 60_000, "KiB that were held at once"
