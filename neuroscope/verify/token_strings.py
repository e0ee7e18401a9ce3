"""Texts that others publish as strings of tokens, back to the ids of our own tokenizer: an id a string, or none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from neuroscope.models.chat import ChatTokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""The piece of a single byte in SentencePiece vocabularies: many have the text of an ordinary token too."""


class TokenStrings:
    """The way back. Strings may be tokens' texts (` the`) or their pieces (`▁the`, `Ġthe`)."""

    def __init__(self, chat: ChatTokenizer) -> None:
        self._backend = chat.tokenizer.backend_tokenizer
        self._texts = [chat.token_bytes(token).decode("utf-8", "replace") for token in range(chat.vocabulary)]
        self._ids: dict[str, list[int]] = defaultdict(list)
        for token, text in enumerate(self._texts):
            self._ids[text].append(token)

    def ids(self, strings: Sequence[str]) -> list[int] | None:
        """One id for each string; None when some string is no token's, or may be several's.

        The ids that our tokenizer gives the joined text come first: where several tokens have one text, they decide.
        """
        texts = [self._text(string) for string in strings]
        if any(text is None for text in texts):
            return None
        known = [text for text in texts if text is not None]
        ids: list[int] = self._backend.encode("".join(known), add_special_tokens=False).ids
        if [self._texts[token] if token < len(self._texts) else "" for token in ids] == known:
            return ids
        candidates = [self._candidates(text) for text in known]
        return [found[0] for found in candidates] if all(len(found) == 1 for found in candidates) else None

    def _text(self, string: str) -> str | None:
        """The text of the token that a string stands for."""
        if string in self._ids:
            return string
        token = self._backend.token_to_id(string)
        return None if token is None or token >= len(self._texts) else self._texts[token]

    def _candidates(self, text: str) -> list[int]:
        found = self._ids[text]
        if len(found) == 1:
            return found
        return [token for token in found if not _BYTE.fullmatch(self._backend.id_to_token(token) or "")]
