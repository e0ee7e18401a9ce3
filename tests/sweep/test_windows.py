"""Windows: long documents cut, BOS first, only content measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_sweep import TinySweep

from neuroscope.corpus import CHAT
from neuroscope.errors import CorpusError
from neuroscope.sweep.windows import BatchShape, ChunkTokens, batches, make_batch, tokenize, windows_of


@pytest.fixture(scope="module")
def tiny(tiny_llama_path: Path, tiny_sae_path: Path) -> TinySweep:
    return TinySweep(tiny_llama_path, tiny_sae_path)


def test_special_token_strings_in_text_are_text(tiny: TinySweep) -> None:
    text = "say <|eot_id|> and <|begin_of_text|> twice"
    tokens = tokenize(tiny.chat, "code", [text], bos=True)
    assert not set(tokens.ids.tolist()) & set(tiny.tokenizer.added_tokens_decoder)
    assert tiny.tokenizer.decode(tokens.ids) == text
    assert (tokens.segment == 0).all()


def test_documents_lie_one_after_the_other(tiny: TinySweep) -> None:
    tokens = tokenize(tiny.chat, "code", ["cats", "", "dogs bark"], bos=True)
    assert tokens.lengths[1] == 0
    assert tokens.lengths.sum() == len(tokens)
    assert np.unique(tokens.document).tolist() == [0, 2]
    assert tokens.position[tokens.document == 2].tolist() == list(range(tokens.lengths[2]))
    assert len(np.unique(tokens.segment)) == 2


def test_the_scaffold_of_a_conversation_is_no_content_and_messages_are_segments(tiny: TinySweep) -> None:
    messages = [{"role": "user", "content": "cats"}, {"role": "assistant", "content": "dogs bark"}]
    tokens = tokenize(tiny.chat, CHAT, [json.dumps(messages)], bos=True)
    parts = [tiny.tokenizer.decode(tokens.ids[tokens.segment == number]) for number in (0, 1)]
    assert parts == ["cats", "dogs bark"]
    assert tokens.segment.max() == 1
    scaffold = tokens.ids[tokens.segment < 0]
    assert set(tiny.tokenizer.added_tokens_decoder) & set(scaffold.tolist())
    assert tokens.ids[0] != tiny.chat.bos_id  # windows put it back


def test_without_bos_a_template_keeps_its_own(tiny: TinySweep) -> None:
    text = json.dumps([{"role": "user", "content": "cats"}])
    assert tokenize(tiny.chat, CHAT, [text], bos=False).ids[0] == tiny.chat.bos_id


@pytest.mark.parametrize("template", [None, "{{ raise_exception('the user must begin') }}"])
def test_a_conversation_that_no_template_takes_is_read_as_plain_text(
    template: str | None, tiny: TinySweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny.chat.tokenizer, "chat_template", template)
    messages = [{"role": "assistant", "content": "cats"}, {"role": "user", "content": "dogs bark"}]
    tokens = tokenize(tiny.chat, CHAT, [json.dumps(messages)], bos=True)
    assert tiny.tokenizer.decode(tokens.ids) == "cats\n\ndogs bark"
    assert (tokens.segment == 0).all()


def test_long_documents_are_cut_into_consecutive_windows_longest_first() -> None:
    windows = windows_of(np.array([7, 0, 3, 5]), 3)
    assert windows.tolist() == [[0, 3], [3, 3], [7, 3], [10, 3], [13, 2], [6, 1]]


def test_every_token_stands_in_exactly_one_window() -> None:
    lengths = np.random.default_rng(0).integers(0, 40, 30)
    covered = np.concatenate([np.arange(start, start + size) for start, size in windows_of(lengths, 8)])
    assert sorted(covered.tolist()) == list(range(lengths.sum()))


def test_a_batch_has_bos_first_and_padding_last(tiny: TinySweep) -> None:
    tokens = tokenize(tiny.chat, "code", ["abcdefg", "xyz"], bos=True)
    (windows,) = batches(tokens, 6, 2, 10)
    batch = make_batch(tokens, windows, 2)
    assert batch.ids.shape == batch.mask.shape == (3, 6)
    assert (batch.ids[:, 0] == 2).all()
    assert batch.mask.sum(dim=1).tolist() == [6, 4, 3]
    assert batch.token.tolist() == [
        [-1, 0, 1, 2, 3, 4],
        [-1, 7, 8, 9, -1, -1],
        [-1, 5, 6, -1, -1, -1],
    ]
    assert batch.ids[1, 1:4].tolist() == tokens.ids[7:10].tolist()


def lengths_of(sizes: list[int], rows: int, shape: BatchShape, bos_id: int | None = None) -> list[list[int]]:
    lengths = np.array(sizes, np.int64)
    none = np.zeros(0, np.int32)
    tokens = ChunkTokens(none, none, none, none, lengths)
    return [windows[:, 1].tolist() for windows in batches(tokens, 100, bos_id, rows, shape)]


def test_batches_are_cut_where_padding_costs_more_than_a_pass() -> None:
    sizes = [10, 10, 9, 7, 3, 3, 1]
    assert lengths_of(sizes, 10, BatchShape()) == [sizes]
    assert lengths_of(sizes, 3, BatchShape()) == [[10, 10, 9], [7, 3, 3], [1]]
    assert lengths_of(sizes, 10, BatchShape(padding=4)) == [[10, 10, 9, 7], [3, 3, 1]]
    assert lengths_of(sizes, 10, BatchShape(padding=3)) == [[10, 10, 9], [7], [3, 3, 1]]
    assert lengths_of(sizes, 10, BatchShape(padding=0)) == [[10, 10], [9], [7], [3, 3], [1]]


def test_batches_hold_no_more_cells_than_asked_but_for_a_single_wide_window() -> None:
    assert lengths_of([10, 10, 9, 2, 2], 10, BatchShape(cells=20)) == [[10, 10], [9, 2], [2]]
    assert lengths_of([10, 10, 9, 2, 2], 10, BatchShape(cells=20), bos_id=1) == [[10], [10], [9, 2], [2]]
    assert lengths_of([30, 30], 10, BatchShape(cells=20)) == [[30], [30]]


def test_no_documents_make_no_batch() -> None:
    assert lengths_of([], 10, BatchShape(cells=20, padding=3)) == []
    assert lengths_of([0, 0], 10, BatchShape(cells=20, padding=3)) == []


def test_without_bos_a_window_holds_one_token_more(tiny: TinySweep) -> None:
    tokens = tokenize(tiny.chat, "code", ["abcdef"], bos=False)
    (windows,) = batches(tokens, 6, None, 10)
    assert make_batch(tokens, windows, None).token.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_plain_text_in_the_chat_stratum_is_told_from_a_conversation(tiny: TinySweep) -> None:
    with pytest.raises(CorpusError, match=r"'chat' is no conversation.*just words"):
        tokenize(tiny.chat, CHAT, ["just words"], bos=True)
