"""Names of features: one label per feature and source, the choice between sources, and what a label may contain.

Who makes labels is `autointerp/` and `neuronpedia`; here they are read, checked, chosen by priority and written.
The text a feature is shown with is always `LabelSet.text`: a feature without a label is called by its number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from neuroscope.errors import LabelError
from neuroscope.label_files import read_rows
from neuroscope.sources import replace_atomically

MAX_WORDS = 15
MAX_CHARACTERS = 120
"""Of labels made here."""
MAX_FOREIGN_WORDS = 60
MAX_FOREIGN_CHARACTERS = 400
"""Of labels that others made: nobody asked them to be short."""
CONFIDENCES = ("high", "medium", "low")
PRIORITY = ("file", "claude", "openai", "neuronpedia", "tokens")
MIN_SCORE = 0.6
"""Balanced accuracy under which a label is flagged; guessing scores 0.5."""

SCHEMA = {
    "feature": pl.Int32,
    "source": pl.String,
    "label": pl.String,
    "confidence": pl.String,
    "model": pl.String,
    "method": pl.String,
    "created_at": pl.String,
}

STATES_SCHEMA = {"feature": pl.Int32, "source": pl.String, "state": pl.String, "reason": pl.String}
"""How each feature fared with a labeler, label or not."""

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Unicode categories of characters that show nothing, change direction or have no meaning."""
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that show nothing either."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://|\bwww\.|\b(?:javascript|data|mailto):", re.IGNORECASE)
_MARKUP = re.compile(
    r"</?[a-z!?]|&(?:#\d+|[a-z]{2,});|\*\*[^*]+\*\*|`[^`]+`|\]\([^)]*\)|^\s*(?:#+|[-*>])\s", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Label:
    """What one source calls one feature."""

    feature: int
    source: str
    label: str
    confidence: str | None = None
    """high, medium or low; None where the source does not say."""
    model: str | None = None
    method: str | None = None
    created_at: str | None = None


def refusal(text: str, max_words: int = MAX_WORDS, max_characters: int = MAX_CHARACTERS) -> str | None:
    """Why `text` may not be shown as a label, or None when it may."""
    words = len(text.split())
    hidden = next((c for c in text if _is_hidden(c)), None)
    reasons = (
        (words == 0, "it is empty"),
        (words > max_words, f"it has {words} words (at most {max_words})"),
        (len(text) > max_characters, f"it has {len(text)} characters (at most {max_characters})"),
        (hidden is not None, f"it contains the invisible character U+{ord(hidden or ' '):04X}"),
        (_URL.search(text) is not None, "it contains a URL"),
        (_MARKUP.search(text) is not None, "it contains markup"),
    )
    return next((reason for broken, reason in reasons if broken), None)


def _is_hidden(character: str) -> bool:
    return character in _BLANK or unicodedata.category(character) in _HIDDEN


def plain(text: str) -> str:
    """`text` on one line, with a blank for each character that shows nothing or changes direction."""
    return "".join(" " if _is_hidden(c) else c for c in text)


def validate(text: str, max_words: int = MAX_WORDS, max_characters: int = MAX_CHARACTERS) -> str:
    """`text` with its blanks made single, or `LabelError` saying which rule it breaks.

    Labels are written by models that have read hostile text, and end on web pages and in terminals.
    """
    label = re.sub(r"[ \t\r\n]+", " ", text).strip()
    reason = refusal(label, max_words, max_characters)
    if reason is not None:
        raise LabelError(f"The label {label[:60]!a} is refused: {reason}.")
    return label


def validate_foreign(text: str) -> str:
    """As `validate`, for a label that others made."""
    return validate(text, MAX_FOREIGN_WORDS, MAX_FOREIGN_CHARACTERS)


@dataclass(frozen=True)
class LabelSet:
    """Labels of one SAE, of one source or several."""

    labels: tuple[Label, ...] = ()

    def best(
        self,
        priority: Sequence[str] = PRIORITY,
        scores: Mapping[tuple[int, str], float] | None = None,
        min_score: float = MIN_SCORE,
        replace_low: bool = False,
    ) -> LabelSet:
        """One label per feature: the first source of `priority` that has one.

        `scores` maps (feature, source) to balanced accuracy. A label under `min_score` is kept with confidence
        `low`, or with `replace_low` gives way to the next source (at the end, to the feature's number).
        """
        rank = {source: place for place, source in enumerate(priority)}
        scores = scores or {}
        chosen: dict[int, Label] = {}
        for label in sorted(self.labels, key=lambda label: rank.get(label.source, len(rank))):
            if label.source not in rank or label.feature in chosen:
                continue
            score = scores.get((label.feature, label.source))
            is_low = score is not None and score < min_score
            if not (is_low and replace_low):
                chosen[label.feature] = replace(label, confidence="low") if is_low else label
        return LabelSet(tuple(chosen[feature] for feature in sorted(chosen)))

    @cached_property
    def by_feature(self) -> dict[int, Label]:
        """The first label of every feature."""
        found: dict[int, Label] = {}
        for label in self.labels:
            found.setdefault(label.feature, label)
        return found

    def text(self, feature: int) -> str:
        """What the feature is called: its first label, else `feature_<index>`."""
        label = self.by_feature.get(feature)
        return f"feature_{feature}" if label is None else label.label

    def texts(self, d_sae: int) -> list[str]:
        """The name of every feature of an SAE of width `d_sae`."""
        return [self.text(feature) for feature in range(d_sae)]

    def to_json(self, path: Path) -> None:
        """Writes the original specification's labels.json: a map from index (as text) to label."""
        named = {str(i): label.label for i, label in sorted(self.by_feature.items())}
        with replace_atomically(path) as temporary:
            temporary.write_text(json.dumps(named, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    def to_parquet(self, path: Path, extra: Mapping[str, Sequence[str | None]] | None = None) -> None:
        """Writes one row per label; `extra` adds columns of text."""
        frame = pl.DataFrame([astuple(label) for label in self.labels], schema=SCHEMA, orient="row")
        frame = frame.with_columns(
            pl.Series(name, list(values), dtype=pl.String) for name, values in (extra or {}).items()
        )
        with replace_atomically(path) as temporary:
            frame.write_parquet(temporary)


def read_labels(path: Path, source: str | None = None) -> LabelSet:
    """Labels of a parquet file, of a CSV or JSON export, or of a labels.json in the original specification's shape.

    A labels.json does not name its source: it is `source`, by default the file's stem.
    Raises `ArtefactError` when the file is missing or is none of these.
    """
    return LabelSet(tuple(of_row(row) for row in read_rows(path, source)))


def of_row(row: Mapping[str, Any]) -> Label:
    """The label of a row of a file; columns that are no part of it are left out."""
    return Label(**{field.name: row[field.name] for field in fields(Label) if field.name in row})


def load_labels(
    paths: Mapping[str, Path],
    *,
    scores: Mapping[tuple[int, str], float] | None = None,
    min_score: float = MIN_SCORE,
    replace_low: bool = False,
) -> LabelSet:
    """One label per feature from the files of several sources, in order of priority (the map's order).

    A file that does not exist is a source that has nothing: labels are optional, numbers remain.
    """
    found: list[Label] = []
    for source, path in paths.items():
        if path.is_file():
            found.extend(replace(label, source=source) for label in read_labels(path, source).labels)
    return LabelSet(tuple(found)).best(list(paths), scores, min_score, replace_low)
