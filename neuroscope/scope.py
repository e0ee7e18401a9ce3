"""A pairing, loaded, for scripts and notebooks: texts and answers with their features, named and ranked.

The server loads the same parts in its own way of life (`server/`); nothing here knows of ports or threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscope.engine import Engine, Sampling
from neuroscope.events import ActiveFeature
from neuroscope.identity import fingerprint_of
from neuroscope.known import Known, find_known
from neuroscope.manifest import Fingerprint, SourcesLock
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.opening import open_backend
from neuroscope.pairing_sae import load_pairing_sae
from neuroscope.ranking import Ranking, select
from neuroscope.sae import SparseActs
from neuroscope.settings import Settings
from neuroscope.settings import load as load_settings

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Token:
    """One token and the features of its own position."""

    token: str
    """The text it adds; empty inside a character."""
    token_id: int
    position: int
    features: tuple[ActiveFeature, ...]
    """Best first, at most `top_k`."""
    filtered_count: int
    """Features the filter took out before those were found."""
    l0: int
    """Number of active features, before any filter."""
    fvu: float | None
    content: bool = True
    """False for BOS, role headers, turn markers and the end of turn."""
    finish_reason: str | None = None
    """On the last token of an answer: stop, length or cancelled."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A model with an SAE, and what is known about the SAE's features."""

    settings: Settings
    engine: Engine
    known: Known
    ranking: Ranking
    fingerprint: Fingerprint | None = None
    """What results must have been made with to be used here."""
    numbers: str = ""
    """What the model's weights are kept in: float32, q4_1."""

    def encode(self, text: str | Messages, *, ranking: Ranking | None = None) -> list[Token]:
        """The tokens of a text or conversation with their features; nothing is generated."""
        chat = self.engine.chat
        prompt = chat.encode_text(text) if isinstance(text, str) else chat.render(text, generation=False)
        return [
            Token(
                token=encoded.text,
                token_id=encoded.token_id,
                position=position,
                content=encoded.content,
                fvu=encoded.fvu,
                **self._named(encoded.acts, ranking),
            )
            for position, encoded in enumerate(self.engine.encode(prompt))
        ]

    def generate(
        self, prompt: str | Messages, *, ranking: Ranking | None = None, **sampling: Any
    ) -> Iterator[Token]:
        """The tokens of the model's answer as they come; `sampling` are the fields of `engine.Sampling`.

        One answer at a time: another call before the last token ends this one with a ModelError.
        """
        for step in self.engine.generate(self.engine.prepare(prompt), Sampling(**sampling)):
            yield Token(
                token=step.text,
                token_id=step.token_id,
                position=step.position,
                content=not step.is_end,
                fvu=step.fvu,
                finish_reason=step.finish_reason,
                **self._named(step.acts, ranking),
            )

    def _named(self, acts: SparseActs, ranking: Ranking | None) -> dict[str, Any]:
        chosen = select(acts, ranking or self.ranking, self.known.stats)
        surprise = [math.nan] * len(chosen.indices) if chosen.surprise is None else chosen.surprise.tolist()
        features = tuple(
            ActiveFeature(index, self.known.labels[index], activation, None if math.isnan(score) else score)
            for index, activation, score in zip(
                chosen.indices.tolist(), chosen.activations.tolist(), surprise, strict=True
            )
        )
        return {"features": features, "filtered_count": chosen.filtered_count, "l0": acts.l0}


def load(
    pairing: str | None = None, *, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Scope:
    """A pairing by name (default: the configured one), downloaded if need be, with its results if there are any.

    `overrides` are settings by dotted key, `{"device": "cpu", "ranking.top_k": 5}`. What is missing is said in
    `scope.known.degraded`. Raises NeuroscopeError when the model or SAE cannot be had.
    """
    return assemble(load_settings(pairing, config=config, overrides=overrides))


def assemble(settings: Settings, enter_stage: Callable[[str], None] = lambda _stage: None) -> Scope:
    """Everything `settings` name; `enter_stage` hears of each stage before it begins."""
    pairing = settings.pairing
    lock = SourcesLock(settings.results / "sources.lock.json")
    enter_stage(f"fetching {pairing.sae.uri}")
    sae_file = lock.resolve(pairing.sae.uri).path
    enter_stage(f"fetching {pairing.model}")
    source = lock.resolve(pairing.model)
    enter_stage("loading the model")
    opened = open_backend(
        source.path,
        pairing.layer,
        backend=settings.backend,
        device=settings.device,
        dtype=pairing.dtype,
        quantization=settings.quantization,
        decode_step=settings.serve.decode_step,
    )
    backend, tokenizer = opened.backend, opened.tokenizer
    enter_stage("loading the SAE")
    sae = load_pairing_sae(pairing, sae_file, device=str(backend.device), decoder=settings.serve.decoder)
    chat = ChatTokenizer(tokenizer, end_ids=backend.end_ids)
    serve = settings.serve
    engine = Engine(backend, sae, chat, decoder=serve.decoder, prefix_cache_mb=serve.prefix_cache_mb)
    enter_stage("opening the results")
    used = fingerprint_of(pairing, model=source, tokenizer=tokenizer, sae=sae, sae_file=sae_file)
    chosen = settings.ranking
    ranking = Ranking(filter=chosen.filter, threshold=chosen.threshold, top_k=chosen.top_k)
    return Scope(settings, engine, find_known(settings, used), ranking, used, opened.numbers)
