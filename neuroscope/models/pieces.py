"""Ids of the pieces of text between control tokens, such as a whole text holding both would get.

The tokenizer's own settings decide: read here, in the layout of `tokenizer.json`, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any

from tokenizers import Encoding, Tokenizer


class PieceEncoder:
    """Copies of `backend` that read control tokens as text: no thread ever finds the original switched.

    `control` are the ids of all that must come out as text; the other added tokens stay whole.
    """

    def __init__(self, backend: Tokenizer, control: Set[int]) -> None:
        spec = json.loads(backend.to_str())
        for token in spec["added_tokens"]:
            token["special"] = token["special"] or token["id"] in control
        self._first = self._later = _reading_special_tokens_as_text(spec)
        if _never_prefixes(spec["pre_tokenizer"]):
            self._later = _reading_special_tokens_as_text(spec)

    def encode(self, text: str, *, at_start: bool) -> Encoding:
        """`text` at the start of a prompt, or after a control token."""
        return (self._first if at_start else self._later).encode(text, add_special_tokens=False)


def _reading_special_tokens_as_text(spec: Any) -> Tokenizer:
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.encode_special_tokens = True
    return tokenizer


def _never_prefixes(pre_tokenizer: Any) -> bool:
    """Turns off, in place, a space that SentencePiece tokenizers put before a text but not after a control token.

    Returns whether there was one. Older ones have a normalizer that puts it before both.
    """
    if pre_tokenizer is None:
        return False
    parts = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    first = [part for part in parts if part.get("prepend_scheme") == "first"]
    for part in first:
        part["prepend_scheme"] = "never"
    return bool(first)
