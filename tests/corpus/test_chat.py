"""Conversations written by a model: questions from the documents, answers cached batch by batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from neuroscope.corpus import SCHEMA, document_id
from neuroscope.corpus.chat import ChatPlan, generate, questions
from neuroscope.errors import CorpusError

TEXTS = {
    "encyclopedia": [
        "The Khmer Empire was a Hindu-Buddhist empire in Southeast Asia.",
        "Aleppo is a city in Syria.",
        "Nothing here names a subject before its verb, and so no question is made",
    ],
    "code": ["def add(a, b):\n    return a + b\n"],
    "conversation": ["How are you?\nI am fine."],
}


def documents() -> pl.DataFrame:
    rows = [(document_id(t), stratum, "made", t) for stratum, texts in TEXTS.items() for t in texts]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("doc_id")


def test_questions_are_made_from_every_kind_of_document_and_asked_once() -> None:
    asked = questions(documents(), ChatPlan(documents=1000))
    assert len(asked) == len(set(asked))
    assert any("the Khmer Empire" in question for question in asked)
    assert any("Aleppo" in question for question in asked)
    assert any("def add(a, b):" in question for question in asked)
    assert "How are you?" in asked


def test_a_smaller_plan_asks_the_first_questions_of_a_larger_one() -> None:
    assert questions(documents(), ChatPlan(documents=5)) == questions(documents(), ChatPlan(documents=9))[:5]


def test_answers_are_the_same_again_and_a_finished_batch_is_not_sampled_twice(
    tiny_llama: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = tiny_llama
    plan = ChatPlan(documents=5, max_tokens=6, batch=2)
    first = generate(model, tokenizer, documents(), plan, tmp_path / "1.parquet", parts=tmp_path / "one")
    other = generate(model, tokenizer, documents(), plan, tmp_path / "2.parquet", parts=tmp_path / "two")
    assert first.equals(other)

    sorted((tmp_path / "one").iterdir())[-1].unlink()
    batches: list[int] = []
    sample = model.generate
    monkeypatch.setattr(model, "generate", lambda *a, **k: batches.append(len(a[0])) or sample(*a, **k))
    again = generate(model, tokenizer, documents(), plan, tmp_path / "3.parquet", parts=tmp_path / "one")

    assert batches == [1]
    assert again.equals(first)


def test_a_document_is_a_conversation_of_one_question_and_one_answer(
    tiny_llama: tuple[Any, Any], tmp_path: Path
) -> None:
    frame = generate(
        *tiny_llama, documents(), ChatPlan(3, 4, batch=3), tmp_path / "c.parquet", parts=tmp_path
    )
    for text in frame["text"]:
        assert [message["role"] for message in json.loads(text)] == ["user", "assistant"]
    assert set(frame["stratum"]) == {"chat"}
    assert frame["doc_id"].to_list() == sorted(frame["doc_id"])


def test_nothing_to_ask_about_says_how_to_go_on(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"corpus\.chat\.documents to 0"):
        generate(*tiny_llama, documents(), ChatPlan(documents=0), tmp_path / "c.parquet", parts=tmp_path)
