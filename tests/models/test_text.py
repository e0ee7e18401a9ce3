"""Text out of tokens: whole characters, and stop strings that lose and double nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from neuroscope.models.text import Detokenizer, StopStrings, TextGate, TokenBytes

TEXTS = [
    "👩‍👩‍👧‍👦 and 🧑🏽‍💻",
    "家族は大切です",
    "  two spaces first",
    "def f():\n    if x:\n\treturn '\ufffd'\n",
    "na\u00efve \u05e9\u05dc\u05d5\u05dd \x00 end",
]


def byte_level() -> Tokenizer:
    """256 bytes and no merges: every character beyond ASCII is split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """SentencePiece's way, as in Gemma and Llama 2: "▁" for a space, <0xE5> for bytes without a piece."""
    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁▁", *"abcdefghilnorstwx':()?\n\t", "é"]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def streamed(detokenizer: Detokenizer, ids: list[int]) -> list[str]:
    return [*map(detokenizer.step, ids), detokenizer.finish()]


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
@pytest.mark.parametrize("text", TEXTS)
def test_streamed_text_is_the_text(make: Callable[[], Tokenizer], text: str) -> None:
    tokenizer = make()
    ids = tokenizer.encode(text).ids
    pieces = streamed(Detokenizer(TokenBytes(tokenizer)), ids)
    assert "".join(pieces) == text
    assert "\ufffd" in text or all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_a_character_comes_with_the_token_that_completes_it(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    detokenizer = Detokenizer(TokenBytes(tokenizer))
    ids = tokenizer.encode("🧿").ids
    assert len(ids) == 4
    inside = []
    texts = []
    for token in ids:
        texts.append(detokenizer.step(token))
        inside.append(detokenizer.inside_character)
    assert texts == ["", "", "", "🧿"]
    assert inside == [True, True, True, False]


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_incomplete_bytes_at_the_end_become_a_replacement_character(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    ids = tokenizer.encode("a🧿").ids[:-1]
    assert streamed(Detokenizer(TokenBytes(tokenizer)), ids) == ["a", "", "", "", "\ufffd"]


def test_a_broken_byte_after_a_whole_character_spoils_neither() -> None:
    tokenizer = byte_fallback()
    ids = [*tokenizer.encode("家").ids, 0xE5, *tokenizer.encode("a").ids]
    assert "".join(streamed(Detokenizer(TokenBytes(tokenizer)), ids)) == "家\ufffda"


def test_random_byte_tokens_decode_as_the_tokenizer_decodes_them() -> None:
    tokenizer = byte_level()
    generator = random.Random(0)
    for _ in range(200):
        ids = [generator.randrange(256) for _ in range(20)]
        assert "".join(streamed(Detokenizer(TokenBytes(tokenizer)), ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_token_bytes_are_those_of_the_vocabulary(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    token_bytes = TokenBytes(tokenizer)
    for token in range(tokenizer.get_vocab_size()):
        expected = tokenizer.decode([token], skip_special_tokens=False)
        assert token_bytes(token).decode("utf-8", "replace") == expected
    assert token_bytes(99_999) == b""


def test_hidden_tokens_add_no_text() -> None:
    tokenizer = byte_level()
    end, think = tokenizer.token_to_id("<end>"), tokenizer.token_to_id("<think>")
    hidden = Detokenizer(TokenBytes(tokenizer), frozenset({end}))
    assert [hidden.step(end), hidden.step(think)] == ["", "<think>"]
    assert Detokenizer(TokenBytes(tokenizer)).step(end) == "<end>"


def test_the_stop_string_that_is_complete_first_counts() -> None:
    assert StopStrings(["abcd", "c"]).find("xabcdef") == 3
    assert StopStrings(["bc", "abc"]).find("xabc") == 1
    assert StopStrings(["zz"]).find("xabc") is None


def test_empty_stop_strings_stop_nothing() -> None:
    stops = StopStrings(["", ""])
    assert stops.find("abc") is None
    assert stops.open_end("abc") == 0


def test_only_the_longest_matching_beginning_of_a_stop_string_is_open() -> None:
    stops = StopStrings(["###", "\n\nUser"])
    assert stops.open_end("abc") == 0
    assert stops.open_end("abc #") == 1
    assert stops.open_end("abc \n\nUse") == 5
    assert stops.open_end("\n\nUses") == 0


def gated(stops: list[str], texts: list[str]) -> tuple[list[list[tuple[int, str]]], bool]:
    """What passes the gate at each item, and the rest; whether a stop string was found."""
    gate: TextGate[int] = TextGate(stops)
    passed = []
    for index, text in enumerate(texts):
        passed.append(gate.push(index, text))
        if gate.stopped:
            return passed, True
    return [*passed, gate.flush()], False


def test_text_that_cannot_be_a_stop_string_passes_at_once() -> None:
    passed, stopped = gated(["STOP"], ["Hello", " there", "!"])
    assert passed == [[(0, "Hello")], [(1, " there")], [(2, "!")], []]
    assert not stopped


def test_a_stop_string_over_several_tokens_is_cut_out_and_its_tokens_have_no_text() -> None:
    passed, stopped = gated(["<stop>"], ["Hi", " yo<", "st", "op", "> never"])
    assert passed == [[(0, "Hi")], [], [], [], [(1, " yo"), (2, ""), (3, ""), (4, "")]]
    assert stopped


def test_a_beginning_that_comes_to_nothing_passes_whole() -> None:
    passed, stopped = gated(["<stop>"], ["a<", "st", "ay", "<s"])
    assert passed == [[], [], [(0, "a<"), (1, "st"), (2, "ay")], [], [(3, "<s")]]
    assert not stopped


def test_a_stop_string_inside_one_token_keeps_the_text_before_it() -> None:
    passed, stopped = gated(["\n"], ["one line\nand more"])
    assert passed == [[(0, "one line")]]
    assert stopped


def test_an_item_inside_a_character_waits_and_takes_the_tail() -> None:
    gate: TextGate[str] = TextGate([])
    assert gate.push("a", "x") == [("a", "x")]
    assert gate.push("b", "", inside_character=True) == []
    assert gate.push("c", "", inside_character=True) == [("b", "")]
    assert gate.flush("\ufffd") == [("c", "\ufffd")]


def test_however_a_text_is_split_the_gate_passes_what_stands_before_the_stop() -> None:
    """Oracle: the text up to the first place where a stop string is complete."""
    generator = random.Random(1)
    for _ in range(500):
        text = "".join(generator.choice("ab<>") for _ in range(generator.randrange(1, 14)))
        stops = [
            "".join(generator.choice("ab<>") for _ in range(generator.randrange(1, 4))) for _ in range(2)
        ]
        cuts = sorted(generator.choices(range(len(text) + 1), k=4))
        texts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        passed, stopped = gated(stops, texts)
        ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
        longest = max(
            (stop for stop in stops if ends and text[: ends[0]].endswith(stop)), key=len, default=""
        )
        expected = text[: ends[0] - len(longest)] if ends else text
        assert "".join(piece for group in passed for _, piece in group) == expected, (text, stops, texts)
        assert stopped == bool(ends)
        assert [item for group in passed for item, _ in group] == list(range(len(passed) - (not stopped)))
