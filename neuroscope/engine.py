"""Generation with features: a plain generator over one backend and one SAE. It knows no threads, no HTTP.

The features of a token are those of the forward pass that *consumes* it (its own position), so the loop
samples a token, feeds it, and then yields it; the last token costs one more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from neuroscope.errors import ContextOverflowError, ModelError, PromptError
from neuroscope.models.backend import Backend, Forward
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.sampling import Choice, Sampler
from neuroscope.models.sampling_options import Sampling
from neuroscope.models.text import TextGate
from neuroscope.sae.autoencoder import SparseActs, SparseAutoencoder
from neuroscope.sae.reading import Clock, FeatureReader

__all__ = ["EncodedToken", "Engine", "Sampling", "Step", "TokenLogprob"]

PREFILL_CELL = 64
"""Prompts run in cells of this many positions on a fixed grid: what follows a cell never changes it."""


class TokenLogprob(NamedTuple):
    """One alternative at a position."""

    token_id: int
    text: bytes
    logprob: float


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One generated token, with the features of its own position."""

    token_index: int
    """0 for the first generated token."""
    token_id: int
    token_bytes: bytes
    """The token's own bytes, which may be part of a character."""
    position: int
    """Position in the context, prompt included."""
    text: str
    """What the token adds to the answer, final: the texts of all steps joined are the answer."""
    acts: SparseActs
    producer: SparseActs
    """Features of the position before, whose logits this token was sampled from."""
    fvu: float | None
    """Fraction of the residual's variance the SAE does not explain; None without a decoder."""
    logprob: float | None
    """Over the distribution after bias and penalties, temperature not applied; None when not asked for."""
    top_logprobs: tuple[TokenLogprob, ...]
    finish_reason: str | None
    """None but on the last step: stop, length or cancelled."""
    prompt_tokens: int
    is_end: bool = False
    """The end-of-turn token: text "", not counted in usage."""


class EncodedToken(NamedTuple):
    """One token of a given text with the features of its position; nothing is generated."""

    token_id: int
    text: str
    content: bool
    """False for BOS, role headers and turn markers."""
    acts: SparseActs
    fvu: float | None


def _never() -> bool:
    return False


class Engine:
    """One conversation at a time. A generation that is left or fails leaves the engine ready for the next.

    Whole cells of the last prompt stay in the backend's cache, and a prompt that begins with the same cells
    does not run them again; its numbers are the same either way.
    """

    def __init__(
        self, backend: Backend, sae: SparseAutoencoder, chat: ChatTokenizer, *, decoder: bool = True
    ) -> None:
        if sae.d_in != backend.d_model:
            raise ModelError(
                f"The SAE reads residuals of {sae.d_in} dimensions, the model's have {backend.d_model}: "
                "they do not belong together."
            )
        self.backend = backend
        self.sae = sae
        self.chat = chat
        self._reader = FeatureReader(sae, decoder=decoder)
        self._cells: list[int] = []  # ids of the whole cells at the start of the cache
        self._run = 0

    @property
    def sae_clock(self) -> Clock:
        """The SAE's share of the time."""
        return self._reader.clock

    def prepare(self, prompt: str | Sequence[Mapping[str, Any]]) -> Prompt:
        """Token ids of a text or of messages, ending where the model goes on."""
        return self.chat.encode_text(prompt) if isinstance(prompt, str) else self.chat.render(prompt)

    def generate(
        self, prompt: Prompt, sampling: Sampling, *, should_stop: Callable[[], bool] = _never
    ) -> Iterator[Step]:
        """Steps until the end of turn, a stop string, the token limit or `should_stop`.

        `should_stop` is asked at every cell of the prompt and at every token; stopped during the prompt, no
        step comes. Raises ContextOverflowError or PromptError at once, ModelError while running.
        """
        limit = self._room(prompt, sampling.max_tokens)
        sampler = Sampler(sampling, self.chat.vocabulary)
        return self._generate(prompt, sampler, sampling.stop, limit, should_stop)

    def encode(self, prompt: Prompt, *, should_stop: Callable[[], bool] = _never) -> list[EncodedToken]:
        """Every token of `prompt` with its features, by the same forward passes as in a generation.

        Stopped by `should_stop`, the tokens so far. Raises ContextOverflowError, PromptError or ModelError.
        """
        self._room(prompt, 0)
        detokenizer = self.chat.detokenizer(show_special=True)
        texts = [detokenizer.step(token) for token in prompt.ids]
        texts[-1] += detokenizer.finish()
        self._resume([])
        forwards = self._run_cells(prompt.ids, 0, should_stop)
        features = [row for forward in forwards for row in self._reader.read(forward.residual)]
        return [
            EncodedToken(token, text, content, *row)
            for token, text, content, row in zip(prompt.ids, texts, prompt.content, features, strict=False)
        ]

    def _room(self, prompt: Prompt, max_tokens: int | None) -> int:
        """The number of tokens that may be generated."""
        used, context = len(prompt.ids), self.backend.context_length
        if not used:
            raise PromptError("The prompt is empty: there is no token to start from.")
        wanted = 1 if max_tokens is None else max_tokens
        if used + wanted > context:
            raise ContextOverflowError(used, wanted, context)
        return context - used if max_tokens is None else max_tokens

    def _generate(
        self,
        prompt: Prompt,
        sampler: Sampler,
        stop: Sequence[str],
        limit: int,
        should_stop: Callable[[], bool],
    ) -> Iterator[Step]:
        detokenizer = self.chat.detokenizer()
        gate: TextGate[Step] = TextGate(stop)
        forward = self._prefill(prompt.ids, should_stop)
        if forward is None:
            return
        run, start = self._run, len(prompt.ids)
        acts = self._reader.read(forward.residual[-1:])[0].acts
        for index in range(limit):
            choice = sampler.choose(forward.logits)
            is_end = choice.token in self.chat.end_ids
            forward = self._forward([choice.token])
            producer, (acts, unexplained) = acts, self._reader.read(forward.residual)[0]
            step = self._step(
                choice, index, start, acts=acts, producer=producer, fvu=unexplained, is_end=is_end
            )
            reason = "stop" if is_end else "length" if index == limit - 1 else None
            if reason is None and should_stop():
                reason = "cancelled"
            passing = gate.flush(detokenizer.finish()) if is_end else []
            text = "" if is_end else detokenizer.step(choice.token)
            passing += gate.push(step, text, inside_character=detokenizer.inside_character)
            if gate.stopped:
                reason = "stop"
            elif reason is not None:
                passing += gate.flush(detokenizer.finish())
            for left, (item, final) in zip(range(len(passing) - 1, -1, -1), passing, strict=True):
                yield replace(item, text=final, finish_reason=None if left else reason)
            if reason is not None:
                return
            if run != self._run:
                raise ModelError("Another prompt ran on this engine before the generation was over.")

    def _step(self, choice: Choice, index: int, prompt_tokens: int, **found: Any) -> Step:
        """A step whose text and finish are not known yet."""
        token_bytes = self.chat.token_bytes
        return Step(
            token_index=index,
            token_id=choice.token,
            token_bytes=token_bytes(choice.token),
            position=prompt_tokens + index,
            text="",
            logprob=choice.logprob,
            top_logprobs=tuple(TokenLogprob(i, token_bytes(i), value) for i, value in choice.top),
            finish_reason=None,
            prompt_tokens=prompt_tokens,
            **found,
        )

    def _prefill(self, ids: list[int], should_stop: Callable[[], bool]) -> Forward | None:
        """The prompt's last forward pass; None when stopped before."""
        position = self._resume(ids)
        forward = None
        for forward in self._run_cells(ids, position, should_stop):
            position += len(forward.residual)
        return forward if position == len(ids) else None

    def _resume(self, ids: list[int]) -> int:
        """Cut the cache back to the whole cells it shares with `ids`, the last id always left to run."""
        shared = 0
        while shared + PREFILL_CELL < len(ids) and (
            self._cells[shared : shared + PREFILL_CELL] == ids[shared : shared + PREFILL_CELL]
        ):
            shared += PREFILL_CELL
        if self.backend.rewind(shared) != shared:
            shared = self.backend.rewind(0)
        self._cells = ids[:shared]
        self._run += 1
        return shared

    def _run_cells(self, ids: list[int], start: int, should_stop: Callable[[], bool]) -> Iterator[Forward]:
        for begin in range(start, len(ids), PREFILL_CELL):
            if should_stop():
                return
            cell = ids[begin : begin + PREFILL_CELL]
            forward = self._forward(cell)
            if len(cell) == PREFILL_CELL:
                self._cells += cell
            yield forward

    def _forward(self, ids: list[int]) -> Forward:
        try:
            return self.backend.forward(ids)
        except BaseException:
            self._cells = []  # some layers may have cached the ids and others not
            self.backend.rewind(0)
            raise
