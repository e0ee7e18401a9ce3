"""What a language model is asked to judge a label, and how its answer is read.

Corpus text and labels are hostile: they are quoted as JSON between lines with a mark that no document can know.
Which windows are shown and what the verdicts are worth is not decided here, nor is anything sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroscope.autointerp.calls.ask import Ask, Key
from neuroscope.autointerp.prompt import as_json, prompt_text, random_mark, unfenced
from neuroscope.autointerp.words import Words
from neuroscope.errors import LabelError

PURPOSE = "score"
"""Of every question here: detection and fuzzing share one budget."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdicts": {
            "type": "array",
            "items": {"type": "integer", "enum": [0, 1]},
            "description": "One number for each window, in order.",
        }
    },
    "required": ["verdicts"],
    "additionalProperties": False,
}
"""JSON schema of an answer. Services do not enforce a list's length: `refusal` does."""

TOKENS_PER_VERDICT = 2
"""A digit and a comma."""
ENVELOPE_TOKENS = 20


def detection_windows(words: Words) -> list[str]:
    """Each window as its raw text, in JSON: nothing shows where the feature would be active."""
    token = words.vocabulary.token
    return [as_json("".join(token(i) for i in ids if i >= 0)) for ids in words.ids.tolist()]


def fuzzing_windows(words: Words, at: int) -> list[str]:
    """Each window as a JSON list: the text before the token in column `at`, the token, the text after it."""
    token = words.vocabulary.token
    parts = [["" if i < 0 else token(i) for i in ids] for ids in words.ids.tolist()]
    return [as_json(["".join(part[:at]), part[at], "".join(part[at + 1 :])]) for part in parts]


def build_ask(
    feature: int,
    method: str,
    label: str,
    windows: Sequence[str],
    *,
    new_mark: Callable[[], str] = random_mark,
) -> Ask:
    """One question about some windows, which are JSON. `method` is detection or fuzzing.

    Its hash ends with the number of windows: so an answer can be checked by a run that did not ask for it.
    """
    system, template = prompt_text(f"score_{method}.txt"), Template(prompt_text("score_user.txt"))
    lines = (f"{number} {window}" for number, window in enumerate(windows, 1))
    data = {"label": as_json(label), "windows": "\n".join(lines), "count": str(len(windows))}
    mark = new_mark()
    while any(mark in part for part in data.values()):
        mark = new_mark()
    unmarked = template.substitute(data, mark="")
    digest = hashlib.sha256(f"{system}\0{unmarked}\0{json.dumps(SCHEMA)}".encode()).hexdigest()
    return Ask(
        feature,
        PURPOSE,
        system,
        template.substitute(data, mark=mark),
        SCHEMA,
        4 * TOKENS_PER_VERDICT * len(windows) + 4 * ENVELOPE_TOKENS,
        f"{digest}-{len(windows)}",
    )


def refusal(key: Key, answer: str) -> str | None:
    """Why an answer holds no verdict for every window of the question with that key; None when it does."""
    wanted = int(key[2].rpartition("-")[2])
    try:
        found = len(read_verdicts(answer))
    except LabelError as error:
        return str(error)
    return None if found == wanted else f"{found} verdicts for {wanted} windows"


def read_verdicts(answer: str) -> NDArray[np.int8]:
    """The verdicts of an answer. Raises LabelError when it is not a list of 0 and 1."""
    try:
        found = json.loads(unfenced(answer))
    except (ValueError, RecursionError) as error:
        raise LabelError(f"the answer is not JSON ({error})") from error
    verdicts = found.get("verdicts") if isinstance(found, dict) else found
    if not isinstance(verdicts, list) or any(type(one) is not int or one not in (0, 1) for one in verdicts):
        raise LabelError("the answer is no list of 0 and 1")
    return np.array(verdicts, np.int8)
