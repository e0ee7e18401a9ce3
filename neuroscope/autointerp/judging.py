"""Labels in words, judged by a language model: which questions are asked, and which verdict each window got.

The questions follow from the evidence, the labels and the seed, the verdicts from those and the ledger: nothing is
held in memory in between. What verdicts are worth is `scoring`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neuroscope.autointerp.calls.ask import Ask, Client, Key
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.records import Tally
from neuroscope.autointerp.calls.session import Terms, ask_all
from neuroscope.autointerp.evidence import CENTRE
from neuroscope.autointerp.questions import (
    ENVELOPE_TOKENS,
    PURPOSE,
    TOKENS_PER_VERDICT,
    build_ask,
    detection_windows,
    fuzzing_windows,
    read_verdicts,
    refusal,
)
from neuroscope.autointerp.score_rows import NO_VERDICT, Verdicts
from neuroscope.autointerp.trials import Trials, generator
from neuroscope.autointerp.words import Words

JUDGED = "judged"
"""State of a good answer in the ledger."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A language model that judges labels, and on what terms it is asked."""

    client: Client
    terms: Terms
    ledger: Path
    progress: Callable[[Tally], None] = lambda tally: None

    def ask(self, questions: Questions) -> Tally:
        """Asks what the ledger does not settle. Raises StopRun when the run stopped early; every answer is kept."""
        return ask_all(
            questions,
            self.client,
            self.ledger,
            self.terms,
            purpose=PURPOSE,
            check=refusal,
            accepted=JUDGED,
            progress=self.progress,
        )


class Questions:
    """The questions about all labels in words, made as they are gone over, and the same every time."""

    def __init__(
        self,
        labels: Mapping[int, Sequence[str]],
        trials: Trials,
        *,
        methods: Sequence[str],
        windows_per_call: int | None = None,
        seed: int = 0,
    ) -> None:
        self._labels, self._trials, self._methods = labels, trials, methods
        self._per_call, self._seed = windows_per_call, seed

    def __iter__(self) -> Iterator[Ask]:
        for feature in sorted(self._labels):
            seen = set[Key]()  # two sources may say the same
            for label in self._labels[feature]:
                for method in self._methods:
                    for ask, _ in self.about(feature, label, method):
                        if ask.key not in seen:
                            seen.add(ask.key)
                            yield ask

    def about(self, feature: int, label: str, method: str) -> Iterator[tuple[Ask, NDArray[np.int64]]]:
        """The questions about one label by one method, each with the numbers of its windows.

        Windows are numbered as in `Trial` (positives, negatives, near misses) or `Marked` (right, wrong), and shown in
        an order that does not depend on the label.
        """
        windows = self._windows(feature, method)
        if not windows:
            return
        order = generator(self._seed, feature).permutation(len(windows))
        size = self._per_call or len(windows)
        for start in range(0, len(windows), size):
            rows = order[start : start + size]
            yield build_ask(feature, method, label, [windows[row] for row in rows]), rows

    def verdicts(self, feature: int, label: str, method: str, ledger: Ledger, model: str) -> Verdicts:
        """The verdict on each window, as far as the ledger has one."""
        asked = list(self.about(feature, label, method))
        found = np.full(sum(len(rows) for _, rows in asked), NO_VERDICT, np.int8)
        for ask, rows in asked:
            texts = [call.text for call in ledger.of(ask.key, model) if call.state == JUDGED]
            if texts:
                found[rows] = read_verdicts(texts[-1] or "")
        return found

    def answer_tokens(self) -> int:
        """What an answer takes, for estimates: that of the first question."""
        first = next(iter(self), None)
        count = 0 if first is None else int(first.content_hash.rpartition("-")[2])
        return ENVELOPE_TOKENS + TOKENS_PER_VERDICT * count

    def _windows(self, feature: int, method: str) -> list[str]:
        if method == "fuzzing":
            marked = self._trials.marked(feature)
            if not marked.enough:
                return []
            return _joined(lambda words: fuzzing_windows(words, CENTRE), marked.right, marked.wrong)
        trial = self._trials.of(feature)
        if not trial.enough:  # the answer would be paid for, and no score could come of it
            return []
        return _joined(detection_windows, trial.positives, trial.negatives, trial.near_misses)


def _joined(texts: Callable[[Words], list[str]], *parts: Words) -> list[str]:
    return [window for part in parts for window in texts(part)]
