"""From OpenAI-style messages to turns that a chat template accepts: plain text, known roles, folded.

Pure functions over data; the template itself is `chat`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from neuroscope.errors import PromptError, shown

ROLES = ("system", "developer", "user", "assistant")
SystemTurns = Literal["never", "first", "anywhere"]
"""Where a template takes a system turn."""

JOINT = "\n\n"
"""Between texts that become one turn."""

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    """system, user or assistant."""
    text: str


def clean_text(text: str) -> str:
    """`text` with lone surrogates, which no tokenizer can read, replaced by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def read_messages(messages: Any) -> list[Turn]:
    """The turns of a list of messages `{"role", "content"}`; `developer` is read as `system`.

    Content may be null (an empty text), a string, or a list of text parts, which concatenate. Only an
    assistant's may be absent, as it is beside tool calls.
    Raises PromptError, naming the message, for anything else.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise PromptError(
            f"messages is {shown(messages)}; it must be a list of {{role, content}} objects, with one at least."
        )
    return [_read_message(index, message) for index, message in enumerate(messages)]


def _read_message(index: int, message: Any) -> Turn:
    if not isinstance(message, Mapping):
        raise PromptError(f"messages[{index}] is {shown(message)}; it must be an object with a role.")
    role = message.get("role")
    if role not in ROLES:
        found = shown(role) if "role" in message else "absent"
        raise PromptError(f"messages[{index}].role is {found}; it must be one of {', '.join(ROLES)}.")
    if "content" not in message and role != "assistant":  # a misspelt key must not pass for an empty text
        raise PromptError(
            f"messages[{index}].content is absent; it must be a string, null or a list of text parts."
        )
    text = clean_text(_read_content(f"messages[{index}].content", message.get("content")))
    return Turn("system" if role == "developer" else role, text)


def _read_content(name: str, content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise PromptError(f"{name} is {shown(content)}; it must be a string, null or a list of text parts.")
    texts = []
    for position, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and not isinstance(part.get("text"), str):
            raise PromptError(f"{name}[{position}].text is {shown(part.get('text'))}; it must be a string.")
        if kind != "text":
            found = f"a part of type {shown(kind)}" if isinstance(part, Mapping) else shown(part)
            raise PromptError(
                f"{name}[{position}] is {found}; this model reads only "
                '{"type": "text", "text": "..."} parts.'
            )
        texts.append(part["text"])
    return "".join(texts)


def fold(turns: Sequence[Turn], system: SystemTurns) -> list[Turn]:
    """Turns in a shape that a template taking system turns `system` accepts, consecutive roles merged.

    Leading system texts become one system turn, or, where the template has none, the beginning of the first
    user turn. Later ones stay in their place, as a user's text where the template takes them only first.
    """
    count = next((i for i, turn in enumerate(turns) if turn.role != "system"), len(turns))
    leading = [turn.text for turn in turns[:count]]
    rest = [
        Turn("user", turn.text) if turn.role == "system" and system != "anywhere" else turn
        for turn in turns[count:]
    ]
    if leading and system != "never":
        return [Turn("system", _join(leading)), *_merge(rest)]
    if leading and (_join(leading) or not rest):
        rest.insert(0, Turn("user", _join(leading)))
    return _merge(rest)


def _merge(turns: Iterable[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            merged[-1] = Turn(turn.role, _join([merged[-1].text, turn.text]))
        else:
            merged.append(turn)
    return merged


def _join(texts: Iterable[str]) -> str:
    return JOINT.join(text for text in texts if text)
