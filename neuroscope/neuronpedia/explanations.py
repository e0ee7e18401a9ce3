"""Neuronpedia's explanations as labels: all that may be shown are kept, each with its method, model and date.

A feature often has several. They are ordered so that the first is the one to show: the method and model that explained
most features of this SAE come first, so that labels are of one kind as far as they go; then the newest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from neuroscope.errors import LabelError
from neuroscope.imported import SOURCE
from neuroscope.labels import (
    MAX_FOREIGN_CHARACTERS,
    MAX_FOREIGN_WORDS,
    Label,
    refusal,
    validate_foreign,
)
from neuroscope.neuronpedia.rows import Row, Tally

_LONGEST_NAME = 80
"""Characters of a method's or model's name, or a date."""


def to_labels(rows: Iterable[tuple[int, Row]], tally: Tally) -> list[Label]:
    """Labels in order of feature, of each feature the one to show first."""
    found = []
    for feature, row in rows:
        text = row.get("description")
        if not isinstance(text, str):
            tally.refused["no text"] += 1
            continue
        try:
            label = validate_foreign(text)
        except LabelError:
            tally.refused[_kind(text)] += 1
            continue
        found.append(
            Label(
                feature,
                SOURCE,
                label,
                model=_name(row.get("explanationModelName")),
                method=_name(row.get("typeName")),
                created_at=_name(row.get("createdAt")),
            )
        )
    return in_order(found)


def in_order(labels: list[Label]) -> list[Label]:
    """By feature; within one, by how many features the method and model explained, then newest first."""
    pairs = {(label.feature, label.method, label.model) for label in labels}
    explained = Counter((method, model) for _, method, model in pairs)
    newest = sorted(labels, key=lambda label: label.created_at or "", reverse=True)
    return sorted(newest, key=lambda label: (label.feature, -explained[label.method, label.model]))


def _kind(text: str) -> str:
    """Why a text is refused, without its own figures: to count by."""
    reason = (
        refusal(" ".join(text.split()), MAX_FOREIGN_WORDS, MAX_FOREIGN_CHARACTERS)
        or "it contains an invisible character"
    )
    reason = re.sub(r"has \d+ (\w+) \(at most (\d+)\)", r"has more than \2 \1", reason)
    return re.sub(r" U\+[0-9A-F]+$", "", reason)


def _name(value: Any) -> str | None:
    """A short printable text, else None."""
    known = isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= _LONGEST_NAME
    return value.strip() if known else None
