"""Where a record keeps its text: records are JSON values or the rows of a table.

A conversation is read as one; else the first column whose name says that it holds text; else, where no record of a
file has such a name, the column with the longest prose. Ids, addresses and dates are never text.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from neuroscope.corpus.found import Conversation, Found, Skipped
from neuroscope.errors import PromptError
from neuroscope.models.conversation import JOINT, read_messages

CHAT_NAMES = ("messages", "conversations", "conversation", "chosen")
TEXT_NAMES = (
    *("text", "content", "body", "document", "article", "raw_content", "extract", "message", "passage"),
    *("story", "dialogue", "transcript", "abstract", "review", "comment", "sentence"),
)
QUESTION_NAMES = ("prompt", "instruction", "question", "query", "input")
ANSWER_NAMES = ("response", "completion", "output", "answer", "chosen")
SYSTEM_NAMES = ("system", "system_prompt")
ADDED_NAMES = ("input", "context")
"""What a question is about, beside it."""
WEAK_NAMES = ("context", "code", "description", "summary", *QUESTION_NAMES, *ANSWER_NAMES, *CHAT_NAMES)
"""Text when there is nothing better."""
KNOWN_NAMES = frozenset((*CHAT_NAMES, *TEXT_NAMES, *SYSTEM_NAMES, *WEAK_NAMES))
NEVER_TEXT = re.compile(
    r"(^|[^a-z])(id|ids|uuid|guid|url|uri|link|href|hash|sha\d*|md5|date|time|timestamp|at|path|file|filename"
    r"|email|license|title|name|author|user|username)$"
)
"""Names of columns that are not guessed to hold the text, however long they are."""
ROLES = {
    **dict.fromkeys(("human", "prompter"), "user"),
    **dict.fromkeys(("gpt", "bot", "model", "ai", "chatgpt"), "assistant"),
}
"""Other words for the roles."""
SAMPLE = 100
"""Records that a guess looks at."""


def texts(records: Iterable[object]) -> Iterator[Found]:
    """The text of each record of one file."""
    rest = iter(records)
    sample = list(islice(rest, SAMPLE))
    column = None if any(map(_is_known, sample)) else longest_prose(sample)
    return (text_of(record, column) for record in chain(sample, rest))


def text_of(record: object, column: str | None = None) -> Found:
    """The text of one record; `column` is where to look when no name says where it is."""
    if isinstance(record, str | Skipped):
        return record
    if record is None:
        return Skipped("null")
    if isinstance(record, list):
        return read_conversation(record)
    if not isinstance(record, Mapping):
        return Skipped("no text field")
    fields = _fields(record)
    talks = [read_conversation(fields[name]) for name in CHAT_NAMES if _holds_list(fields.get(name))]
    talk = next((each for each in talks if isinstance(each, Conversation)), None)
    text = talk or _first(fields, TEXT_NAMES) or _asked_and_answered(fields) or _first(fields, WEAK_NAMES)
    text = text or _first(record, (column,))
    return text or _why_not(fields, talks, column)


def _why_not(fields: Mapping[str, object], talks: Sequence[Found], column: str | None) -> Skipped:
    if talks:
        return Skipped("not a conversation")
    held = [fields[name] for name in (*KNOWN_NAMES, (column or "").casefold()) if name in fields]
    if any(isinstance(value, str) for value in held):
        return Skipped("empty")
    return Skipped("null" if None in held else "no text field")


def _fields(record: Mapping[Any, Any]) -> dict[str, Any]:
    """A record by its names in lower case; the hub's viewer wraps it as `row`."""
    row = record.get("row")
    return {
        str(name).strip().casefold(): value
        for name, value in (row if isinstance(row, dict) else record).items()
    }


def _is_known(record: object) -> bool:
    return isinstance(record, Mapping) and not KNOWN_NAMES.isdisjoint(_fields(record))


def _first(fields: Mapping[str, Any], names: Iterable[str | None]) -> str | None:
    values = (fields.get(name) for name in names if name is not None)
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def _asked_and_answered(fields: Mapping[str, Any]) -> Conversation | None:
    asked, answered = _first(fields, QUESTION_NAMES), _first(fields, ANSWER_NAMES)
    if asked is None or answered is None:
        return None
    added = _first(fields, ADDED_NAMES)
    messages = [
        ("system", _first(fields, SYSTEM_NAMES)),
        ("user", asked if added in {None, asked} else f"{asked}{JOINT}{added}"),
        ("assistant", answered),
    ]
    return _written([{"role": role, "content": text} for role, text in messages if text])


def _holds_list(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("["))


def is_talk(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Whether these are the messages of one conversation, be they readable or not."""
    return all("role" in message or {"from", "value"} <= message.keys() for message in messages)


def read_conversation(messages: object) -> Conversation | Skipped:
    """Messages as {role, content} or {from, value}, also as JSON in a string."""
    if isinstance(messages, str):
        try:
            messages = json.loads(messages)
        except (ValueError, RecursionError):
            return Skipped("not a conversation")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return Skipped("not a conversation")
    try:
        turns = read_messages([_message(message) for message in messages])
    except PromptError:
        return Skipped("not a conversation")
    if not any(turn.text.strip() for turn in turns):
        return Skipped("empty")
    return _written([{"role": turn.role, "content": turn.text} for turn in turns])


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = str(message.get("role", message.get("from"))).casefold()
    content = next((message[name] for name in ("content", "value", "text") if name in message), False)
    return {"role": ROLES.get(role, role), "content": content}


def _written(messages: Sequence[Mapping[str, str]]) -> Conversation:
    return Conversation(json.dumps(messages, ensure_ascii=False))


def longest_prose(sample: Iterable[object]) -> str | None:
    """The column whose strings are prose and, over all the records, longest; None where no column is."""
    columns: dict[str, list[str]] = defaultdict(list)
    for record in sample:
        for name, value in record.items() if isinstance(record, Mapping) else ():
            if isinstance(value, str) and value.strip() and not NEVER_TEXT.search(str(name).casefold()):
                columns[name].append(value)
    lengths = {
        name: sum(map(len, values))
        for name, values in columns.items()
        if 2 * sum(map(is_prose, values)) > len(values)
    }
    return max(lengths, key=lambda name: lengths[name], default=None)


def is_prose(text: str) -> bool:
    """Words: mostly letters, with spaces unless the script writes none; no id, address, hash or date."""
    shown = "".join(text[:1000].split())
    has_words = not text.isascii() or len(text.split(maxsplit=1)) > 1
    return has_words and 2 * sum(map(str.isalpha, shown)) > len(shown)
