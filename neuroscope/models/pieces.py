"""Ids of the pieces of text between control tokens, such as a whole text holding both would get.

The tokenizer's own settings decide; how they are laid out is known here and nowhere else.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Set
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer


class PieceEncoder:
    """Copies of `backend` that read control tokens as text: no thread ever finds the original switched.

    `control` are the ids of all that must come out as text; the other added tokens stay whole. The copies share
    the original's vocabulary, which for Gemma takes seconds to build.
    """

    def __init__(self, backend: Tokenizer, control: Set[int]) -> None:
        self._first = self._later = _reading_as_text(backend, control, backend.pre_tokenizer)
        if (pre_tokenizer := _without_first_prefix(backend.pre_tokenizer)) is not None:
            self._later = _reading_as_text(backend, control, pre_tokenizer)

    def encode(self, text: str, *, at_start: bool) -> Encoding:
        """`text` at the start of a prompt, or after a control token."""
        return encode_text(self._first if at_start else self._later, text)


def encode_text(backend: Tokenizer, text: str) -> Encoding:
    """`text` without the special tokens a tokenizer adds, as a batch of one: `encode` itself holds the interpreter.

    Nothing else of the process would run meanwhile: most of a second for a prompt of a megabyte.
    """
    encoding: Encoding = backend.encode_batch([text], add_special_tokens=False)[0]
    return encoding


def _reading_as_text(backend: Tokenizer, control: Set[int], pre_tokenizer: Any) -> Tokenizer:
    tokenizer = Tokenizer(backend.model)
    if backend.normalizer is not None:
        tokenizer.normalizer = backend.normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    added = sorted(backend.get_added_tokens_decoder().items())  # in order, since each takes the next free id
    tokenizer.add_tokens([_marked(token, token.special or i in control) for i, token in added])
    tokenizer.encode_special_tokens = True
    return tokenizer


def _marked(token: AddedToken, special: bool) -> AddedToken:
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=special,
    )


def _without_first_prefix(pre_tokenizer: Any) -> Any:
    """A copy without the space that some SentencePiece tokenizers put before a text but not after a control token.

    None where there is no such space. Older tokenizers have a normalizer that puts it before both.
    """
    if pre_tokenizer is None:
        return None
    settings = json.loads(pre_tokenizer.__getstate__())
    parts = settings.get("pretokenizers", [settings])
    first = [part for part in parts if part.get("prepend_scheme") == "first"]
    if not first:
        return None
    for part in first:
        part["prepend_scheme"] = "never"
    changed = copy.deepcopy(pre_tokenizer)
    changed.__setstate__(json.dumps(settings).encode())
    return changed
