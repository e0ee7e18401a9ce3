"""Language models that judge labels, without a language model: they answer what they are asked from the truth they
were given, or badly in a way that is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from neuroscope.autointerp.calls.ask import Ask, Reply, Usage

Answer = Callable[[int, str, list[Any]], str]
"""Feature, label and windows, as they stand in the prompt, to the text of an answer."""


def verdicts(values: list[bool]) -> str:
    return json.dumps({"verdicts": [int(value) for value in values]})


def by(truth: Callable[[int, str, Any], bool]) -> Answer:
    """A judge that holds a window for right when `truth` does."""
    return lambda feature, label, windows: verdicts([truth(feature, label, window) for window in windows])


def always_yes(feature: int, label: str, windows: list[Any]) -> str:
    return verdicts([True] * len(windows))


def coin(feature: int, label: str, windows: list[Any]) -> str:
    """Chance, the same for the same window."""
    bits = [
        hashlib.blake2b(f"{feature}{window}".encode(), digest_size=1).digest()[0] & 1 for window in windows
    ]
    return verdicts([bool(bit) for bit in bits])


def garbage(feature: int, label: str, windows: list[Any]) -> str:
    return "I cannot judge that."


def one_short(feature: int, label: str, windows: list[Any]) -> str:
    return verdicts([True] * (len(windows) - 1))


@dataclass
class FakeJudge:
    """A service that answers at once."""

    answer: Answer
    model: str = "fake"
    asked: list[Ask] = field(default_factory=list)

    def ask(self, ask: Ask) -> Reply:
        self.asked.append(ask)
        label, windows = read_prompt(ask.user)
        return Reply(self.answer(ask.feature, label, windows), Usage(len(ask.user) // 4, len(windows)))

    def max_tokens(self, ask: Ask) -> int:
        return ask.max_tokens

    def count(self, ask: Ask) -> int | None:
        return len(ask.user) // 4

    def close(self) -> None:
        """Nothing to give back."""


def read_prompt(user: str) -> tuple[str, list[Any]]:
    """The label and the windows of a prompt: a text, or for fuzzing [before, marked, after]. They are numbered."""
    lines = user.splitlines()
    label = next(line.removeprefix("Label: ") for line in lines if line.startswith("Label: "))
    windows = [line.partition(" ") for line in lines if line[:1].isdigit()]
    assert [int(number) for number, _, _ in windows] == list(range(1, len(windows) + 1))
    return json.loads(label), [json.loads(window) for _, _, window in windows]
