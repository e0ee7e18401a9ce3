"""The stages that make a corpus, from settings and files to files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from neuroscope import corpus, settings
from neuroscope.corpus.stage import build_chat, build_documents, join
from neuroscope.errors import CorpusError
from neuroscope.settings import Settings
from neuroscope.settings.values import CorpusSource

LINE = "The river runs through the old town and under a bridge of stone."


@pytest.fixture
def plan(tmp_path: Path) -> Settings:
    (tmp_path / "a.txt").write_text(LINE)
    messages = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "In the north."},
    ]
    (tmp_path / "chat.jsonl").write_text(json.dumps(messages) + '\n{}\nnot json\n"words"\n')
    sources = (
        CorpusSource("texts", "encyclopedia", str(tmp_path / "a.txt"), licence="CC0-1.0"),
        CorpusSource("talk", "chat", str(tmp_path / "chat.jsonl"), format="conversations"),
    )
    loaded = settings.load("smollm2-135m")
    return replace(loaded, corpus=replace(loaded.corpus, sources=sources, chat=None))


def test_sources_and_conversations_become_one_corpus_with_one_report(plan: Settings, tmp_path: Path) -> None:
    build_documents(plan, output=tmp_path / "documents.parquet")
    build_chat(plan, documents=tmp_path / "documents.parquet", output=tmp_path / "chat.parquet")
    report = join(
        plan,
        documents=tmp_path / "documents.parquet",
        chat=tmp_path / "chat.parquet",
        output=tmp_path / "corpus.parquet",
    )

    frame = corpus.read(tmp_path / "corpus.parquet")
    assert sorted(zip(frame["stratum"], frame["source"], strict=True)) == [
        ("chat", "talk"),
        ("encyclopedia", "texts"),
    ]
    assert [(entry["name"], entry["licence"]) for entry in report["sources"]] == [
        ("texts", "CC0-1.0"),
        ("talk", "unknown"),
    ]
    assert report["sources"][1]["skipped"] == {
        "invalid JSON": 1,
        "no text field": 1,
        "not a conversation": 1,
    }
    assert json.loads((tmp_path / "corpus.json").read_text()) == report


def test_a_conversation_is_never_cut_however_long(plan: Settings, tmp_path: Path) -> None:
    long = [{"role": "user", "content": LINE * 100}]
    (tmp_path / "chat.jsonl").write_text(json.dumps(long))
    build_documents(plan, output=tmp_path / "d.parquet")
    chats = corpus.read(tmp_path / "d.parquet").filter(stratum="chat")["text"].to_list()
    assert [json.loads(text) for text in chats] == [long]


def test_the_users_own_folder_replaces_the_sources(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.md").write_text(LINE)
    own = settings.load("smollm2-135m", overrides={"corpus.path": str(folder)})
    report = build_documents(own, output=tmp_path / "d.parquet")
    assert [entry["name"] for entry in report["sources"]] == ["own"]
    assert corpus.read(tmp_path / "d.parquet")["text"].to_list() == [LINE]


def test_joining_without_the_documents_report_says_how_to_build_them(plan: Settings, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="neuroscope corpus build"):
        join(
            plan, documents=tmp_path / "d.parquet", chat=tmp_path / "c.parquet", output=tmp_path / "o.parquet"
        )
