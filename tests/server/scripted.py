"""An engine that says what it is told, with features one can compute in the head. It does not need torch.

The last message (or the prompt) is the script: options in brackets, then the words of the answer, one a token.

    [delay=0.05]    seconds before each token        [fail=3]     an exception instead of token 3
    [prefill=2]     seconds before the first token   [chars]      one token a byte instead of one a word
    [hang=60]       seconds before the first token in which nobody is asked whether to stop
    [gil=60]        as hang, and Python stands still meanwhile: nothing else of the process runs
    [die]           an exception, now and at every later call until the engine is made anew
    [tokenize=9]    seconds that the prompt takes to be made

The prompt's own tokens are its words; position n has the features of the answer's token n. The first is scaffold.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from neuroscope.errors import ContextOverflowError, PromptError
from neuroscope.manifest import Fingerprint
from neuroscope.models.conversation import clean_text, read_messages
from neuroscope.models.sampling_options import Sampling
from neuroscope.models.token_ids import TokenIds
from neuroscope.server.loaded import Loaded
from neuroscope.stats import CalibrationStats
from neuroscope.steps import EncodedToken, PromptCell, ScoredToken, Step, TokenLogprob

WIDTH = 32
LAYER = 7
CONTEXT = 256
CELL = 64
"""As `engine.PREFILL_CELL`; `test_scripted.py` holds them together."""
ALWAYS_ON = 3
"""Fires on every token of every text, so that the frequency filter hides it."""

FINGERPRINT = Fingerprint(
    model="scripted/model",
    model_revision=None,
    tokenizer_sha256="0" * 64,
    sae="scripted/sae",
    sae_sha256="1" * 64,
    layer=LAYER,
    d_in=16,
    d_sae=WIDTH,
)
"""What results must have been made with to be used with this engine."""


class Acts(NamedTuple):
    indices: Any
    values: Any


@dataclass
class Script:
    """The prompt, as the scripted engine reads it."""

    ids: list[int]
    tokens: list[bytes]
    words: list[str]
    """The texts of `ids`."""
    options: dict[str, float] = field(default_factory=dict)


def acts_of(index: int) -> Acts:
    """Token n has feature 3 at 9.0, feature 4 + n % 8 at 5.0 and feature 20 + n % 8 at 2.5."""
    return Acts(
        np.array([ALWAYS_ON, 4 + index % 8, 20 + index % 8], np.int32), np.array([9.0, 5.0, 2.5], np.float32)
    )


FIRST_PRODUCER = Acts(np.array([0], np.int32), np.array([1.0], np.float32))
"""The position before the first token of an answer."""


class ScriptedEngine:
    def __init__(self) -> None:
        self.generations = 0
        self.sae_clock = SimpleNamespace(count=0, seconds=0.0)
        self.reused_tokens = 0
        self.is_dead = False

    @property
    def chat(self) -> ScriptedEngine:
        """It tokenizes too."""
        return self

    def encode_text(self, text: str) -> Script:
        return self.prepare(text)

    def encode_ids(self, ids: list[int]) -> Script:
        return self.prepare(TokenIds(tuple(ids)))

    def render(self, messages: list[dict[str, Any]], *, generation: bool) -> Script:
        read_messages(messages)
        return self.prepare(messages)

    def encode(
        self, script: Script, *, should_stop: Callable[[], bool] = lambda: False
    ) -> list[EncodedToken]:
        """A token a word, after [prefill] and [hang]."""
        ran = list(self._prefill(script, should_stop))
        if len(ran) * CELL < len(script.ids):
            return []
        return [
            EncodedToken(n, word.decode(), True, acts_of(n), 0.125) for n, word in enumerate(script.tokens)
        ]

    def prepare(self, asked: str | TokenIds | list[dict[str, Any]]) -> Script:
        if isinstance(asked, TokenIds):
            if min(asked.ids) < 0:
                raise PromptError(f"prompt holds token {min(asked.ids)}")
            return Script(
                list(asked.ids), [b"%d " % token for token in asked.ids], [f"{token} " for token in asked.ids]
            )
        text = clean_text(asked if isinstance(asked, str) else read_messages(asked)[-1].text)
        options = {name: float(value or 1) for name, value in re.findall(r"\[(\w+)=?([\d.]*)\]", text)}
        words = re.sub(r"\[[^\]]*\]", "", text).encode()
        tokens = [bytes([b]) for b in words] if "chars" in options else re.findall(rb"\s*\S+", words)
        time.sleep(options.get("tokenize", 0))
        words_of_prompt = re.findall(r"\s*\S+", text)
        return Script(list(range(len(words_of_prompt))), tokens, words_of_prompt, options)

    def text_of(self, script: Script) -> str:
        return b"".join(script.tokens).decode()

    def score(
        self,
        script: Script,
        top: int,
        *,
        show_special: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[ScoredToken]:
        scored = []
        for place, (token_id, token) in enumerate(zip(script.ids, script.tokens, strict=False)):
            text, found = token.decode("utf-8", "replace"), (TokenLogprob(token_id, token, -0.5),)
            logprob, best = (-0.5, found[:top]) if place else (None, ())
            scored.append(ScoredToken(token_id, token, text, logprob, best))
        return scored

    def generate(
        self,
        script: Script,
        sampling: Sampling,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        prompt_features: bool = False,
    ) -> Iterator[PromptCell | Step]:
        used, wanted = len(script.ids), sampling.max_tokens or 1
        if used + wanted > CONTEXT:
            raise ContextOverflowError(used, wanted, CONTEXT)
        return self._generate(script, sampling, should_stop, prompt_features)

    def _generate(
        self, script: Script, sampling: Sampling, should_stop: Callable[[], bool], prompt_features: bool
    ) -> Iterator[PromptCell | Step]:
        self.generations += 1
        ran = 0
        for start in self._prefill(script, should_stop):
            ran = start + CELL
            if prompt_features:
                yield _prompt_cell(script, start)
        if ran < len(script.ids):
            return
        pending = b""
        limit = min(sampling.max_tokens or CONTEXT, len(script.tokens) + 1)
        for index in range(limit):
            time.sleep(script.options.get("delay", 0))
            if script.options.get("fail") == index:
                raise RuntimeError(f"the script says so: {script.tokens}")
            is_end = index == len(script.tokens)
            token = b"" if is_end else script.tokens[index]
            pending += token
            try:
                text, pending = pending.decode(), b""
            except UnicodeDecodeError:
                text = ""
            finish = "stop" if is_end else "length" if index + 1 == sampling.max_tokens else None
            finish = "cancelled" if finish is None and should_stop() else finish
            self.sae_clock.count += 1
            self.sae_clock.seconds += 0.5
            yield Step(
                token_index=index,
                token_id=1000 + index,
                token_bytes=token,
                position=len(script.ids) + index,
                text=text,
                acts=acts_of(index),
                producer=acts_of(index - 1) if index else FIRST_PRODUCER,
                fvu=0.125,
                logprob=-0.25 if sampling.logprobs else None,
                top_logprobs=_alternatives(token)[: sampling.top_logprobs] if sampling.logprobs else (),
                finish_reason=finish,
                prompt_tokens=len(script.ids),
                is_end=is_end,
            )
            if finish is not None:
                return

    def _prefill(self, script: Script, should_stop: Callable[[], bool]) -> Iterator[int]:
        """Where each cell of the prompt begins, as it has run; fewer when stopped."""
        self.is_dead |= "die" in script.options
        if self.is_dead:
            raise RuntimeError("the engine is dead")
        time.sleep(script.options.get("hang", 0))
        if "gil" in script.options:
            ctypes.PyDLL(None).sleep(int(script.options["gil"]))
        cells = range(0, len(script.ids), CELL)
        started = time.monotonic()
        for number, start in enumerate(cells, 1):
            while time.monotonic() < started + script.options.get("prefill", 0) * number / len(cells):
                time.sleep(0.01)
                if should_stop():
                    return
            yield start


def _prompt_cell(script: Script, start: int) -> PromptCell:
    tokens = [
        EncodedToken(script.ids[n], script.words[n], n > 0, acts_of(n), 0.25)  # type: ignore[arg-type]
        for n in range(start, min(start + CELL, len(script.ids)))
    ]
    return PromptCell(start, tuple(tokens), acts_of(start - 1) if start else None)  # type: ignore[arg-type]


def _alternatives(token: bytes) -> tuple[TokenLogprob, ...]:
    return (TokenLogprob(7, token, -0.25), TokenLogprob(8, b"\xf0", float("-inf")))


def stats() -> CalibrationStats:
    """1,000 tokens: feature 3 fired on all of them, the others on 100, each with mean 2 and variance 1."""
    n_fired = np.full(WIDTH, 100)
    n_fired[ALWAYS_ON] = 1000
    n_fired[0] = 0
    totals = n_fired * 2.0
    return CalibrationStats.from_sums(1000, n_fired, totals, n_fired * 5.0, np.where(n_fired > 0, 9.0, 0.0))


def scripted(*, degraded: tuple[str, ...] = (), with_stats: bool = True) -> Loaded:
    """Everything the server needs, without a model."""
    labels = tuple(f"label of {index}" if index < 28 else f"feature_{index}" for index in range(WIDTH))
    return Loaded(
        model="scripted/model",
        aliases=frozenset({"scripted"}),
        pairing="scripted",
        engine=ScriptedEngine(),  # type: ignore[arg-type]
        context_length=CONTEXT,
        fingerprint=FINGERPRINT,
        layer=LAYER,
        device="none",
        dtype="none",
        decoding="scripted",
        sae_id="scripted/sae",
        width=WIDTH,
        labels=labels,
        label_sources={"test": 28},
        stats=stats() if with_stats else None,
        results=None,
        neuronpedia=("scripted-model", "7-scripted"),
        verification=None,
        degraded=degraded,
    )
