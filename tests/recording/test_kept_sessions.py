"""Recordings kept on disk: the files are the truth, the database follows them whatever happens in between."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from made_recordings import recording

from neuroscope import sessions as sessions_module
from neuroscope.errors import ArtefactError
from neuroscope.recording import IDENTIFIER, Recording
from neuroscope.sessions import Sessions, TooManySessionsError, UnknownSessionError, new_id
from neuroscope.store import sessions as store_sessions
from neuroscope.store.session_schema import SESSION_TABLES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kept(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "results/tiny")


def made(name: str, **changes: Any) -> Recording:
    return recording(id=name, **changes)


def rows(kept: Sessions, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(kept.database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def ids(kept: Sessions) -> list[str]:
    """Of the database."""
    return [row[0] for row in rows(kept, "SELECT session FROM sessions ORDER BY 1")]


def test_ids_sort_by_time_and_are_safe_names() -> None:
    names = [new_id(datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2, 31)]
    assert names == sorted(names)
    assert all(IDENTIFIER.fullmatch(name) for name in names)
    assert len({new_id(datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(100)}) == 100


def test_what_is_saved_is_read_listed_and_queried(kept: Sessions) -> None:
    first = made("a", prompt=[("<s>", {3: 9.0}), (" hi", {4: 1.5})])
    assert kept.save(first) == []
    assert kept.save(made("b", created_at="2026-02-01T00:00:00Z", title="later")) == []
    assert kept.read("a") == first
    total, found = kept.page()
    assert (total, [row["id"] for row in found]) == (2, ["b", "a"])
    assert found[1] == {
        "id": "a",
        "created_at": "2026-01-31T09:00:00Z",
        "title": "Where is Paris?",
        "model": "scripted/model",
        "pairing": "tiny",
        "layer": 7,
        "sae_id": "scripted/sae",
        "completion_id": "chatcmpl-1939d6fb",
        "finish_reason": "length",
        "prompt_tokens": 2,
        "total_tokens": 2,
        "bytes": kept.path("a").stat().st_size,
        "error": None,
    }
    assert rows(kept, "SELECT * EXCLUDE (session) FROM tokens WHERE session = 'a' ORDER BY position") == [
        ("prompt", 0, 0, first.prompt[0]["token_id"], "<s>", 1, 0.125),
        ("prompt", 1, 1, first.prompt[1]["token_id"], " hi", 1, 0.125),
        ("answer", 0, 2, first.tokens[0]["token_id"], " a", 2, 0.125),
        ("answer", 1, 3, first.tokens[1]["token_id"], " b", 1, 0.125),
    ]
    assert rows(
        kept,
        "SELECT * EXCLUDE (session) FROM activations WHERE session = 'a' AND place = 'answer' ORDER BY ALL",
    ) == [
        ("answer", 0, 3, "label of 3", 9.0, None),
        ("answer", 0, 4, "label of 4", 5.0, 3.0),
        ("answer", 1, 3, "label of 3", 9.0, None),
    ]
    assert kept.page(1, 1) == (2, [found[1]])
    assert kept.page(5, 1) == (2, [])


def test_every_table_and_column_is_commented(kept: Sessions) -> None:
    kept.save(made("a"))
    commented = dict(rows(kept, "SELECT table_name, comment FROM duckdb_tables()"))
    columns = rows(kept, "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal")
    assert commented == {table.name: table.comment for table in SESSION_TABLES}
    assert {(t, c): comment for t, c, comment in columns} == {
        (table.name, column.name): column.comment for table in SESSION_TABLES for column in table.columns
    }


def test_an_old_command_line_opens_the_database(kept: Sessions) -> None:
    for name in "ab":  # made, and changed
        kept.save(made(name))
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{kept.database}' AS r (READ_ONLY)")
            query = "SELECT tags FROM duckdb_databases() WHERE database_name = 'r'"
            ((tags,),) = connection.execute(query).fetchall()
        assert tags["storage_version"].startswith("v1.4.0")


def test_a_deleted_recording_leaves_the_database_too(kept: Sessions) -> None:
    kept.save(made("a"))
    kept.save(made("b"))
    assert kept.delete("a") == []
    assert ids(kept) == ["b"]
    assert rows(kept, "SELECT DISTINCT session FROM activations") == [("b",)]
    for again in (kept.delete, kept.read):
        with pytest.raises(UnknownSessionError, match="There is no session a"):
            again("a")


@pytest.mark.parametrize(
    "name", ["../a", "a/b", "/etc/passwd", ".", "..", "", "A", "a.json", "a\0", "a" * 65, "a\n", "é", "-a"]
)
def test_a_name_that_is_no_id_reaches_no_file(kept: Sessions, name: str) -> None:
    kept.save(made("a"))
    for asked in (kept.path, kept.read, kept.delete):
        with pytest.raises(UnknownSessionError, match="no session's id"):
            asked(name)


def test_an_id_is_not_used_twice(kept: Sessions) -> None:
    kept.save(made("a"))
    with pytest.raises(ArtefactError, match="is there already"):
        kept.save(made("a", title="another"))
    assert kept.read("a").title == "Where is Paris?"


def test_there_is_an_end_to_how_many_are_kept(tmp_path: Path) -> None:
    few = Sessions(tmp_path, limit=2)
    few.save(made("a"))
    few.save(made("b"))
    with pytest.raises(TooManySessionsError, match="holds 2 recordings, as many as are kept"):
        few.save(made("c"))
    few.delete("a")
    few.save(made("c"))


def test_nothing_recorded_is_an_empty_list_and_makes_no_folder(kept: Sessions) -> None:
    assert kept.page() == (0, [])
    assert kept.sync() == []
    assert not kept.folder.parent.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(b"<html>" * 1000),
        lambda path: path.with_name(path.name + ".wal").write_bytes(b"half a log"),
        lambda path: duckdb.connect(str(path)).execute("UPDATE version SET version = 0").close(),
        lambda path: duckdb.connect(str(path)).execute("DROP TABLE sessions").close(),
    ],
    ids=["missing", "empty", "cut short", "html", "log left", "other version", "table missing"],
)
def test_a_database_that_cannot_be_used_is_made_anew(kept: Sessions, damage: Callable[[Path], Any]) -> None:
    kept.save(made("a"))
    kept.save(made("b"))
    damage(kept.database)
    assert [row["id"] for row in kept.page()[1]] == ["b", "a"], "the files are the truth"
    assert kept.sync() == []
    assert ids(kept) == ["a", "b"]
    assert rows(kept, "SELECT count(*) FROM activations") == [(6,)]


def test_files_that_were_put_there_or_changed_or_removed_by_hand_are_followed(kept: Sessions) -> None:
    for name in "abc":
        kept.save(made(name))
    kept.path("d").write_text(made("a", title="a copy").to_json())
    kept.path("b").unlink()
    kept.path("c").write_text(made("c", title="edited").to_json())
    assert {row["id"]: row["title"] for row in kept.page()[1]} == {
        "a": "Where is Paris?",
        "c": "edited",
        "d": "a copy",
    }
    assert kept.sync() == []
    assert rows(kept, "SELECT session, title FROM sessions ORDER BY 1") == [
        ("a", "Where is Paris?"),
        ("c", "edited"),
        ("d", "a copy"),
    ]
    assert rows(kept, "SELECT count(*) FROM tokens") == [(6,)]


def test_a_damaged_recording_is_listed_with_its_fault_and_does_not_hide_others(kept: Sessions) -> None:
    kept.save(made("a"))
    kept.path("b").write_text(made("b").to_json()[:-100])
    kept.path("c").write_text("{}")
    (kept.folder / "notes.txt").write_text("mine")
    (kept.folder / "d.json").mkdir()
    found = {row["id"]: row["error"] for row in kept.page()[1]}
    assert found["a"] is None
    assert "cut short" in found["b"]
    assert "is no recording" in found["c"]
    assert set(found) == {"a", "b", "c"}
    said = kept.sync()
    assert [sentence.partition(" ")[0] for sentence in said] == ["b", "c"]
    assert ids(kept) == ["a"]
    with pytest.raises(ArtefactError, match="cut short"):
        kept.read("b")


def test_nothing_is_written_where_nothing_changed(kept: Sessions) -> None:
    kept.save(made("a"))
    before = kept.database.stat()
    assert kept.sync() == []
    assert kept.database.stat().st_ino == before.st_ino


def test_a_reader_who_holds_the_file_open_stops_nobody_and_sees_one_state(kept: Sessions) -> None:
    kept.save(made("a"))
    program = (
        "import duckdb, sys\n"
        f"connection = duckdb.connect({str(kept.database)!r}, read_only=True)\n"
        "print(connection.execute('SELECT count(*) FROM sessions').fetchall(), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(connection.execute('SELECT count(*) FROM activations').fetchall(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == "[(1,)]\n"
        assert kept.save(made("b")) == []
        assert ids(kept) == ["a", "b"]
        print(file=reader.stdin, flush=True)
        assert reader.stdout.readline() == "[(3,)]\n"


def test_a_full_disk_for_the_database_keeps_the_recording_and_says_so(
    kept: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.save(made("a"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store_sessions, "insert_rows", full)
        (sentence,) = kept.save(made("b"))
    assert sentence.startswith("sessions.duckdb is behind the recordings, and catches up the next time. ")
    assert "The disk is full" in sentence
    assert ids(kept) == ["a"]
    assert {row["id"] for row in kept.page()[1]} == {"a", "b"}
    assert {path.name for path in kept.folder.parent.iterdir()} == {"sessions", "sessions.duckdb"}
    assert kept.save(made("c")) == []
    assert ids(kept) == ["a", "b", "c"]


def test_a_full_disk_for_the_recording_keeps_nothing_and_says_so(
    kept: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    kept.save(made("a"))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ArtefactError, match="The disk is full"):
        kept.save(made("b"))
    assert {row["id"] for row in kept.page()[1]} == {"a"}


def test_results_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file where a folder should be")
    with pytest.raises(ArtefactError, match="sessions cannot be used"):
        Sessions(tmp_path / "results").save(made("a"))


def test_a_folder_without_the_right_to_write_is_named(
    kept: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(kept.folder))

    monkeypatch.setattr(sessions_module, "write_recording", refused)
    with pytest.raises(ArtefactError, match="The disk may not be written"):
        kept.save(made("a"))


KILLED = """
import sys, os
sys.path[:0] = [{root!r}, {tests!r}]
from made_recordings import recording
from neuroscope.sessions import Sessions
from neuroscope.store import sessions as store
{sabotage}
Sessions({results!r}).save(recording(id="b"))
"""
SABOTAGE = {
    "before the database": "store.bring_up_to_date = lambda *_: os.kill(os.getpid(), 9)",
    "in the database": "store.insert_rows = lambda *_: os.kill(os.getpid(), 9)",
    "before its name": "from pathlib import Path\nPath.replace = lambda old, new: "
    "os.kill(os.getpid(), 9) if new.suffix != '.json' else os.replace(old, new)",
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_a_process_killed_between_file_and_database_loses_nothing(kept: Sessions, sabotage: str) -> None:
    kept.save(made("a"))
    program = KILLED.format(
        root=str(ROOT),
        tests=str(ROOT / "tests"),
        results=str(kept.folder.parent),
        sabotage=SABOTAGE[sabotage],
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert ids(kept) == ["a"]
    assert kept.save(made("c")) == [], "the lock of the dead is nobody's"
    assert ids(kept) == ["a", "b", "c"]


def test_two_processes_that_save_at_once_both_do(kept: Sessions) -> None:
    program = KILLED.format(
        root=str(ROOT), tests=str(ROOT / "tests"), results=str(kept.folder.parent), sabotage=""
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program.replace('"b"', f'"b{n}"')], env={**os.environ})
        for n in range(2)
    ]
    assert [process.wait(180) for process in running] == [0, 0]
    assert ids(kept) == ["b0", "b1"]
