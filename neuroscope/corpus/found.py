"""What a reader finds: a text, a conversation, or nothing for a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or record that gave no text, or one whose text lost a part or may have been misread."""

    reason: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, as a JSON list of {role, content}."""

    text: str


Found = str | Conversation | Skipped
