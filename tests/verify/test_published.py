"""Neuronpedia's examples against our own activations: made by transformers' own code, and broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes.neuronpedia import Row, activation, activations_of, packed
from fakes.tiny import TINY_LAYER

from neuroscope import settings
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.neuronpedia.activations import strongest
from neuroscope.neuronpedia.rows import Tally, read_rows
from neuroscope.sae import SparseAutoencoder
from neuroscope.verify import Subject
from neuroscope.verify.published import Published, in_our_tokens, published
from neuroscope.verify.stage import _same_model
from neuroscope.verify.token_strings import TokenStrings

SUBJECTS = ("the user", "the model", "hello", "goodbye", "a horse", "winter", "the sea", "music")
TEXTS = [f"then {subject} said that number {i} is the same\nthing" for i, subject in enumerate(SUBJECTS * 3)]


@pytest.fixture
def subject(tiny_gemma: tuple[Any, Any], tiny_sae: SparseAutoencoder) -> Subject:
    model, tokenizer = tiny_gemma
    backend = TorchBackend(model, tokenizer, TINY_LAYER)
    return Subject(
        model=model, backend=backend, chat=ChatTokenizer(tokenizer), sae=tiny_sae, texts={}, batch=5
    )


def theirs(subject: Subject, *, layer: int = TINY_LAYER, bos: bool = True) -> list[Row]:
    """What Neuronpedia would publish about this pair, or about the same SAE on another layer."""
    return activations_of(subject.model, subject.chat.tokenizer, subject.sae, TEXTS, layer, bos=bos)


def imported(rows: list[Row], tmp_path: Path, width: int = 64) -> pl.DataFrame:
    """Through the code that imports them."""
    tally = Tally()
    path = tmp_path / "batch-0.jsonl.gz"
    path.write_bytes(packed(rows))
    frame = strongest(read_rows([path], width, tally), 5, tally)
    assert not tally.refused
    return frame


def of(frame: pl.DataFrame, *, same_model: bool = True) -> Published:
    return Published(frame, "tiny", same_model)


@pytest.mark.parametrize("bos", [True, False])
def test_examples_of_this_very_pair_agree(subject: Subject, tmp_path: Path, bos: bool) -> None:
    found = published(subject, of(imported(theirs(subject, bos=bos), tmp_path)))
    assert (found.name, found.verdict, found.measured) == ("neuronpedia", "ok", 1.0)
    assert found.limit == ">= 50% within 5%"
    assert "0 left out" in found.sentence


def shifted(rows: list[Row]) -> list[Row]:
    """The same activations said to be on the token before."""
    return [activation(int(row["index"]), row["tokens"], [*row["values"][1:], 0.0]) for row in rows]


def doubled(rows: list[Row]) -> list[Row]:
    return [
        activation(int(row["index"]), row["tokens"], [2 * value for value in row["values"]]) for row in rows
    ]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda s: theirs(s, layer=TINY_LAYER - 1), "another layer, width or model"),
        (lambda s: doubled(theirs(s)), "Ours are 0.5 times theirs"),
        (lambda s: shifted(theirs(s)), "one token after the peak"),
    ],
    ids=["other layer", "scaled", "shifted"],
)
def test_each_kind_of_fault_is_off_and_told_apart(
    subject: Subject, tmp_path: Path, broken: Callable[[Subject], list[Row]], words: str
) -> None:
    found = published(subject, of(imported(broken(subject), tmp_path)))
    assert found.verdict == "off"
    assert found.measured is not None
    assert found.measured < 0.5
    assert words in found.sentence


def test_examples_of_a_base_model_are_shown_and_not_judged(subject: Subject, tmp_path: Path) -> None:
    frame = imported(theirs(subject, layer=0), tmp_path)
    found = published(subject, of(frame, same_model=False))
    assert found.verdict == "skipped"
    assert found.measured is not None
    assert "Theirs are of tiny, another model" in found.sentence


def test_examples_in_other_tokens_are_left_out_and_counted(subject: Subject, tmp_path: Path) -> None:
    frame = imported(theirs(subject), tmp_path)
    foreign = frame.with_columns(
        tokens=pl.when(pl.col("feature") % 2 == 0)
        .then(pl.lit(pl.Series([["<bos>", " whale-song"]])))
        .otherwise("tokens"),
    )
    features = frame.filter(pl.col("rank") == 0)["feature"]
    examples, left_out = in_our_tokens(subject, foreign)
    assert left_out == (features % 2 == 0).sum()
    assert {example.feature for example in examples} == set(features.filter(features % 2 == 1))
    found = published(subject, of(foreign.filter(pl.col("feature") % 2 == 0)))
    assert (found.verdict, found.measured) == ("skipped", None)
    assert "0 have our tokens one to one" in found.sentence


def test_strings_are_texts_or_pieces_and_never_guessed(tiny_gemma: tuple[Any, Any]) -> None:
    chat = ChatTokenizer(tiny_gemma[1])
    strings, ids = TokenStrings(chat), chat.tokenizer.encode("the user said\nhello", add_special_tokens=False)
    assert strings.ids([chat.tokenizer.decode([token]) for token in ids]) == ids
    assert strings.ids(chat.tokenizer.convert_ids_to_tokens(ids)) == ids
    whole = chat.tokenizer.encode("the", add_special_tokens=False)
    assert len(whole) == 1
    assert strings.ids(["t", "h", "e"]) == [chat.tokenizer.convert_tokens_to_ids(letter) for letter in "the"]
    assert strings.ids(["\ufffd"]) is None, "the bytes of a character have no text of their own"
    assert strings.ids(["hello world"]) is None


@pytest.mark.parametrize("pairing", settings.pairings())
def test_only_pairings_of_an_sae_of_the_base_model_are_not_judged(pairing: str) -> None:
    chosen = settings.load_pairing(pairing)
    if chosen.neuronpedia is not None:
        judged = _same_model(chosen.model, chosen.neuronpedia.model_id)
        assert judged == (pairing not in ("gemma-2-2b-it", "gemma-2-9b-it-pt-sae"))


def test_a_revision_is_no_part_of_a_model_s_name() -> None:
    assert _same_model("hf://google/gemma-2-2b@abc", "gemma-2-2b")
    assert not _same_model("hf://google/gemma-2-2b-it@abc", "gemma-2-2b")
