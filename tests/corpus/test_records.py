"""Where a record keeps its text, in every format alike: ids and addresses are never taken for it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from neuroscope.corpus import TextSource, build, read
from neuroscope.corpus.found import Conversation, Found, Skipped
from neuroscope.corpus.readers import read_files

LINE = "The river runs through the old town and under a bridge of stone."
OTHER = "A second text, which speaks of a mill beside the water."
ADDRESS = "https://example.org/" + "a-very-long-path/" * 20
SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 2


def as_jsonl(rows: list[dict[str, Any]]) -> tuple[str, bytes]:
    return "a.jsonl", "\n".join(map(json.dumps, rows)).encode()


def as_json(rows: list[dict[str, Any]]) -> tuple[str, bytes]:
    return "a.json", json.dumps(rows, indent=1).encode()


def as_csv(rows: list[dict[str, Any]]) -> tuple[str, bytes]:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return "a.csv", out.getvalue().encode()


def as_parquet(rows: list[dict[str, Any]]) -> tuple[str, bytes]:
    out = io.BytesIO()
    pl.DataFrame(rows).write_parquet(out)
    return "a.parquet", out.getvalue()


FORMATS = pytest.mark.parametrize("form", [as_jsonl, as_json, as_csv, as_parquet])
Form = Callable[[list[dict[str, Any]]], tuple[str, bytes]]


def found(folder: Path, name: str, content: bytes | str) -> list[Found]:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_files(folder / name))


def talk(*messages: tuple[str, str]) -> Conversation:
    listed = [{"role": role, "content": content} for role, content in messages]
    return Conversation(json.dumps(listed, ensure_ascii=False))


@FORMATS
@pytest.mark.parametrize("name", ["text", "Text", "CONTENT", "body", "document", "Article"])
def test_a_column_whose_name_says_text_is_read_wherever_it_stands(
    form: Form, name: str, tmp_path: Path
) -> None:
    rows = [{"url": ADDRESS, "sha256": SHA, name: LINE}, {"url": ADDRESS, "sha256": SHA, name: OTHER}]
    assert found(tmp_path, *form(rows)) == [LINE, OTHER]


@FORMATS
def test_without_such_a_name_the_column_of_the_longest_prose_is_read(form: Form, tmp_path: Path) -> None:
    rows = [
        {
            "key": "ab12-cd34" * 30,
            "source": ADDRESS,
            "when": "2024-01-01 10:00:00",
            "tag": "a few words",
            "words": t,
        }
        for t in (LINE, OTHER)
    ]
    assert found(tmp_path, *form(rows)) == [LINE, OTHER]


@FORMATS
def test_a_file_of_ids_addresses_and_titles_is_refused_not_read(form: Form, tmp_path: Path) -> None:
    rows = [
        {"id": SHA, "url": ADDRESS, "title": "The old town by the river", "created_at": "2024-01-01 10:00"}
    ]
    assert set(found(tmp_path, *form(rows))) == {Skipped("no text field")}


@FORMATS
def test_scripts_without_spaces_are_prose(form: Form, tmp_path: Path) -> None:
    rows = [{"key": SHA, "words": "河流穿过老城,从一座石桥下流过。" * 3}]
    assert found(tmp_path, *form(rows)) == [rows[0]["words"]]


@FORMATS
def test_an_empty_text_is_counted_and_its_id_does_not_stand_in_for_it(form: Form, tmp_path: Path) -> None:
    rows = [
        {"id": "one long id with words in it", "text": LINE},
        {"id": "another id with words in it", "text": " "},
    ]
    assert found(tmp_path, *form(rows)) == [LINE, Skipped("empty")]


@pytest.mark.parametrize("form", [as_jsonl, as_json, as_parquet])
@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("messages", [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]),
        ("conversations", [{"from": "human", "value": "Where?"}, {"from": "gpt", "value": "Here."}]),
    ],
)
def test_an_export_of_messages_is_read_as_conversations(
    form: Form, name: str, messages: list[dict[str, str]], tmp_path: Path
) -> None:
    rows = [{"id": "a long id with many words in it", "prompt": "Where?", name: messages}]
    assert found(tmp_path, *form(rows)) == [talk(("user", "Where?"), ("assistant", "Here."))]


def test_messages_kept_as_json_in_a_table_are_a_conversation(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi, you"}]
    rows = [{"id": "1", "messages": json.dumps(messages)}]
    assert found(tmp_path, *as_csv(rows)) == [talk(("system", "Be kind."), ("user", "Hi, you"))]


@FORMATS
def test_a_conversation_written_as_one_string_is_a_text(form: Form, tmp_path: Path) -> None:
    rows = [{"id": SHA, "conversation": f"User: {LINE} Assistant: {OTHER}"}]
    assert found(tmp_path, *form(rows)) == [rows[0]["conversation"]]


@FORMATS
def test_a_question_and_its_answer_are_a_conversation(form: Form, tmp_path: Path) -> None:
    rows = [{"instruction": "Translate.", "input": "Guten Morgen", "output": "Good morning"}]
    assert found(tmp_path, *form(rows)) == [
        talk(("user", "Translate.\n\nGuten Morgen"), ("assistant", "Good morning"))
    ]
    rows = [{"system_prompt": "Be brief.", "question": "2+2?", "response": "4"}]
    assert found(tmp_path, *form(rows)) == [
        talk(("system", "Be brief."), ("user", "2+2?"), ("assistant", "4"))
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "tool", "content": LINE}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        [{"author": "me", "content": LINE}],
        ["words"],
        [],
    ],
)
def test_messages_that_no_model_can_be_given_are_counted(messages: list[Any], tmp_path: Path) -> None:
    line = json.dumps({"messages": messages})
    assert found(tmp_path, "a.jsonl", f"{line}\n{line}\n") == [Skipped("not a conversation")] * 2


@pytest.mark.parametrize("role", ["tool", "moderator"])
def test_a_lone_conversation_that_cannot_be_read_is_not_taken_for_a_list_of_texts(
    role: str, tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": LINE}, {"role": role, "content": LINE}]
    assert found(tmp_path, "a.json", json.dumps({"messages": messages})) == [Skipped("not a conversation")]
    assert found(tmp_path, "a.json", json.dumps(messages)) == [Skipped("not a conversation")]


def test_conversations_among_a_users_texts_become_documents_of_the_chat_stratum(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": LINE * 50}, {"role": "assistant", "content": "Yes."}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "x", "messages": messages}))
    (tmp_path / "b.txt").write_text(LINE)
    report = build([TextSource("own", "own", tmp_path, "files")], tmp_path / "out.parquet")
    frame = read(tmp_path / "out.parquet").sort("stratum")
    assert frame["stratum"].to_list() == ["chat", "own"]
    assert json.loads(frame["text"][0]) == messages
    assert [(entry["stratum"], entry["documents"]) for entry in report["sources"]] == [
        ("own", 1),
        ("chat", 1),
    ]


@pytest.mark.parametrize(
    "content",
    [
        [{"text": LINE}, {"text": OTHER}],
        [LINE, OTHER],
        {"data": [{"text": LINE}, {"text": OTHER}], "description": "Two texts about water."},
        {
            "features": [],
            "rows": [{"row_idx": 0, "row": {"text": LINE}}, {"row_idx": 1, "row": {"text": OTHER}}],
        },
        {"train": [{"text": LINE}], "test": [{"text": OTHER}]},
        {"a": {"id": "1", "text": LINE}, "b": {"id": "2", "text": OTHER}},
        {"a": LINE, "b": OTHER},
        {"id": {"0": "x", "1": "y"}, "text": {"0": LINE, "1": OTHER}},
        {"id": ["x", "y"], "text": [LINE, OTHER]},
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_read_in_whatever_it_is_wrapped(
    content: object, name: str, indent: int | None, tmp_path: Path
) -> None:
    assert found(tmp_path, name, json.dumps(content, indent=indent)) == [LINE, OTHER]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson"])
def test_json_lines_are_read_in_a_file_of_either_name(name: str, end: str, tmp_path: Path) -> None:
    lines = end.join(["", json.dumps({"text": LINE}), "", "not json", json.dumps({"text": OTHER}), ""])
    assert found(tmp_path, name, lines) == [LINE, Skipped("invalid JSON"), OTHER]


def test_json_lines_whose_first_is_broken_are_read_from_the_second(tmp_path: Path) -> None:
    lines = '{"text": \n' + json.dumps({"text": LINE})
    assert found(tmp_path, "a.jsonl", lines) == [Skipped("invalid JSON"), LINE]


def test_one_record_alone_is_one_text(tmp_path: Path) -> None:
    record = {"text": LINE, "tags": ["one tag of words", "two"], "parts": [{"name": "x"}]}
    assert found(tmp_path, "a.json", json.dumps(record)) == [LINE]


def test_a_list_of_messages_is_one_conversation_and_no_list_of_texts(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": LINE}, {"role": "assistant", "content": OTHER}]
    assert found(tmp_path, "a.json", json.dumps(messages)) == [talk(("user", LINE), ("assistant", OTHER))]


def test_a_parquet_file_of_many_rows_is_read_to_its_end(tmp_path: Path) -> None:
    rows = [f"{LINE} {number}" for number in range(25_001)]
    pl.DataFrame({"id": range(25_001), "text": rows}).write_parquet(
        tmp_path / "a.parquet", row_group_size=7_000
    )
    assert list(read_files(tmp_path / "a.parquet")) == rows
