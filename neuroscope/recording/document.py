"""What a recording holds, as one record with its JSON; that a document is one is checked in `reading`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from neuroscope.manifest import IDENTITY, Fingerprint

FORMAT = "neuroscope-recording"
VERSION = 1

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """A checked document; tokens are rows in the words of the features stream.

    A token's `top_features` are all that are active on it, unfiltered, strongest first, as [index, activation,
    surprise or null].
    """

    id: str
    created_at: str
    """ISO 8601 in UTC."""
    title: str
    model: str
    pairing: str
    layer: int
    sae_id: str
    width: int
    fingerprint: Row
    """What decides whether features of two recordings are the same, without any path of the machine."""
    degraded: list[str]
    messages: list[Row] | None
    """The conversation, where whoever saved it told it: a server keeps none."""
    prompt: list[Row]
    """Empty where the request did not ask for the prompt's features."""
    tokens: list[Row]
    completion_id: str
    finish_reason: str
    total_tokens: int
    """Tokens of the answer, the end of turn not counted."""
    ranking: Row
    """How the server showed features when it was recorded."""
    features: dict[str, Row]
    """Label and statistics of each feature that is active on any token, by its index as a string."""

    def to_dict(self) -> Row:
        return {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in self.__slots__},
        }

    def to_json(self) -> str:
        """One line of strict JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @property
    def rows(self) -> list[Row]:
        """Prompt and answer, in order."""
        return [*self.prompt, *self.tokens]


def identity(fingerprint: Fingerprint, model: str) -> Row:
    """The part of a fingerprint that a recording carries; `model` is the name clients use, which is no path."""
    whole = asdict(fingerprint)
    return {**{key: whole[key] for key in IDENTITY}, "model": model}
