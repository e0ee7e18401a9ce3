"""What a labeler is asked and what it answers, whoever it is: Claude, or the rules of `tokens`.

Reading the evidence and writing labels is `pipeline`'s business; a labeler sees one feature at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from neuroscope.autointerp.evidence import Examples
from neuroscope.autointerp.words import TokenText

State = Literal["labelled", "refused", "truncated", "invalid", "failed", "insufficient", "dead"]
"""How a request ended. Only `labelled` carries a label: the text of an error never becomes one."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelRequest:
    """The evidence about one feature. None of it comes from the documents that labels are scored on."""

    feature: int
    top: Examples
    """Max-activating examples, strongest first."""
    sample: Examples
    """Random examples over the distribution of activations."""
    text: TokenText
    """The text of a token id."""
    promoted: tuple[str, ...] = ()
    """Output tokens that the feature makes likelier, strongest first."""
    suppressed: tuple[str, ...] = ()
    firing_rate: float | None = None
    """Share of tokens on which it fires."""
    unseen: frozenset[str] = field(default=frozenset())
    """Documents that hold the feature's held-out examples: a labeler that has texts of its own leaves them out."""


@dataclass(frozen=True, slots=True)
class LabelResult:
    """A labeler's answer about one feature."""

    feature: int
    state: State
    label: str | None = None
    confidence: str | None = None
    pattern: str | None = None
    """What the labeler saw, in a sentence."""
    rule: str | None = None
    """The label as JSON that `rules` can check in a text; None for labels in free words."""
    flags: tuple[str, ...] = ()
    """What a reader should know: for one, that the label copies its examples."""


class Labeler(Protocol):
    """Names features, one request at a time."""

    @property
    def source(self) -> str:
        """Who the labels are by, as in the column `source`: claude or tokens."""

    @property
    def model(self) -> str | None:
        """The language model asked; None for rules."""

    @property
    def method(self) -> str:
        """How labels are made, in a word or two."""

    def label(self, request: LabelRequest) -> LabelResult:
        """The label of one feature. Raises `LabelError` only for what would fail for every other feature too."""
