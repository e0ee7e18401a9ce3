"""What a language model is asked to name a feature, and how its answer is read.

Corpus text is hostile: it is quoted as JSON between lines with a mark that no document can know, and the answer is
checked before it becomes a label. Sending the prompt is not done here.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from neuroscope.autointerp.evidence import Examples
from neuroscope.autointerp.labeler import LabelRequest, LabelResult
from neuroscope.autointerp.words import TokenText
from neuroscope.errors import LabelError
from neuroscope.labels import CONFIDENCES, validate

_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n\s*```\s*", re.DOTALL | re.IGNORECASE)
COPIED_WORDS = 8
"""A label that repeats so many words of an example in a row describes one text, not a pattern."""

RESPONSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "description": "What the tokens and their contexts have in common, in one or two sentences.",
        },
        "label": {
            "type": "string",
            "description": "A concise label of under 15 words that describes what the feature detects.",
        },
        "confidence": {
            "type": "string",
            "enum": list(CONFIDENCES),
            "description": "How consistent the examples are with the label.",
        },
    },
    "required": ["pattern", "label", "confidence"],
    "additionalProperties": False,
}
"""JSON schema of an answer, for structured output."""

MAX_TOKENS = 400
"""Of an answer: two sentences and a label take a hundred."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request for one label. `system` is the same for every feature, so that it can be cached."""

    system: str
    user: str
    content_hash: str
    """SHA-256 of the prompt without its random mark: the same evidence has the same hash."""


def random_mark() -> str:
    """A mark that no document can know."""
    return secrets.token_hex(8)


def build_label_prompt(request: LabelRequest, *, new_mark: Callable[[], str] = random_mark) -> Prompt:
    """The prompt for one feature; `new_mark` makes a mark that the data is fenced with.

    Raises `LabelError` when the feature has no examples.
    """
    if not len(request.top):
        raise LabelError(f"Feature {request.feature} has no examples to make a label from.")
    maximum = float(request.top.activations.max())
    rate = request.firing_rate
    data = {
        "feature": str(request.feature),
        "maximum": f"{maximum:.2f}",
        "rate": "" if rate is None else f" It is active on {rate:.3%} of all tokens.",
        "top": _example_lines(request.top, maximum, request.text),
        "sample": _example_lines(request.sample, maximum, request.text),
        "promoted": as_json(list(request.promoted)),
        "suppressed": as_json(list(request.suppressed)),
    }
    system, template = prompt_text("label_system.txt"), Template(prompt_text("label_user.txt"))
    mark = new_mark()
    while any(mark in part for part in data.values()):
        mark = new_mark()
    unmarked = template.substitute(data, mark="")
    return Prompt(
        system,
        template.substitute(data, mark=mark),
        hashlib.sha256(f"{system}\0{unmarked}\0{json.dumps(RESPONSE_SCHEMA)}".encode()).hexdigest(),
    )


@cache
def prompt_text(name: str) -> str:
    """A file of `prompts`."""
    return resources.files("neuroscope.autointerp").joinpath("prompts", name).read_text(encoding="utf-8")


def as_json(value: object) -> str:
    """JSON on one line, with invisible and direction-changing characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(
        r"[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]",
        lambda match: f"\\u{ord(match.group()):04x}",
        text,
    )


def scaled(activation: float, maximum: float) -> int:
    """The activation on a scale from 0 to 10, 10 for the feature's maximum."""
    return max(0, min(10, round(10 * activation / maximum))) if maximum > 0 else 0


def _example_lines(examples: Examples, maximum: float, text: TokenText) -> str:
    lines = []
    for before, token, after, activation in example_texts(examples, text):
        example = {
            "before": before,
            "token": token,
            "after": after,
            "activation": scaled(activation, maximum),
            "raw": round(activation, 2),
        }
        lines.append(as_json(example))
    return "\n".join(lines) or "(none)"


def example_texts(examples: Examples, text: TokenText) -> Iterable[tuple[str, str, str, float]]:
    """Each example as the text before its token, the token, the text after it, and the activation."""
    for window, at, activation in zip(examples.windows, examples.at, examples.activations, strict=True):
        pieces = ["" if token < 0 else text(int(token)) for token in window]
        yield "".join(pieces[:at]), pieces[at], "".join(pieces[at + 1 :]), float(activation)


def read_answer(request: LabelRequest, answer: str | Mapping[str, Any]) -> LabelResult:
    """The model's answer as a result: `labelled`, or `invalid` without a label. An error never becomes a label."""
    try:
        label, confidence, pattern = _fields(answer)
    except LabelError as error:
        return LabelResult(request.feature, "invalid", pattern=str(error))
    flags = ("copies an example",) if copies_example(label, request) else ()
    return LabelResult(request.feature, "labelled", label, confidence, pattern, flags=flags)


def unfenced(answer: str) -> str:
    """An answer without the code fence that services put around it which were asked for JSON by words alone."""
    fenced = _FENCE.fullmatch(answer)
    return answer if fenced is None else fenced[1]


def refusal(answer: str) -> str | None:
    """Why an answer holds no label, or None when it does."""
    try:
        _fields(answer)
    except LabelError as error:
        return str(error)
    return None


def _fields(answer: str | Mapping[str, Any]) -> tuple[str, str, str]:
    """Label, confidence and pattern. Raises LabelError for whatever else an answer may be."""
    try:
        fields = json.loads(unfenced(answer)) if isinstance(answer, str) else answer
    except (ValueError, RecursionError) as error:
        raise LabelError(f"the answer is not one JSON object ({error})") from error
    label, confidence = validate(_string(fields, "label")), _string(fields, "confidence")
    if confidence not in CONFIDENCES:
        raise LabelError(f"confidence is {confidence[:60]!a}")
    return label, confidence, _string(fields, "pattern")


def _string(fields: object, name: str) -> str:
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if not isinstance(value, str):
        raise LabelError(f"the answer has no text {name!r}")
    return value


def copies_example(label: str, request: LabelRequest) -> bool:
    """Whether the label repeats COPIED_WORDS words in a row of one of the examples."""
    words = _words(label)
    runs = [words[start : start + COPIED_WORDS] for start in range(len(words) - COPIED_WORDS + 1)]
    texts = (
        f" {' '.join(_words(before + token + after))} "
        for examples in (request.top, request.sample)
        for before, token, after, _ in example_texts(examples, request.text)
    )
    return any(f" {' '.join(run)} " in text for text in texts for run in runs)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
