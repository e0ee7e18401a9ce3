"""Generation with features: a plain generator over one backend and one SAE. It knows no threads, no HTTP.

The features of a token are those of the forward pass that *consumes* it (its own position), so the loop
samples a token, feeds it, and then yields it; the last token costs one more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, overload

from neuroscope.errors import ContextOverflowError, ModelError, PromptError
from neuroscope.models.backend import Backend
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.sampling import Choice, Sampler
from neuroscope.models.sampling_options import Sampling
from neuroscope.models.text import TextGate
from neuroscope.models.token_ids import TokenIds
from neuroscope.prefill import PREFILL_CELL, Prefill, Run
from neuroscope.prefix import PrefixStore
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.reading import Clock, FeatureReader
from neuroscope.scoring import score
from neuroscope.steps import EncodedToken, PromptCell, ScoredToken, Step, TokenLogprob

__all__ = ["PREFILL_CELL", "EncodedToken", "Engine", "PromptCell", "Sampling", "Step", "TokenLogprob"]

PREFIX_CACHE_MB = 512
MB = 1_000_000


def _never() -> bool:
    return False


class Engine:
    """One conversation at a time. A generation that is left or fails leaves the engine ready for the next.

    Whole cells of earlier prompts are kept, `prefix_cache_mb` of them at most, and a prompt that begins with the
    same tokens does not run them again; its numbers are the same either way. 0 runs every prompt whole.
    """

    def __init__(
        self,
        backend: Backend,
        sae: SparseAutoencoder,
        chat: ChatTokenizer,
        *,
        decoder: bool = True,
        prefix_cache_mb: int = PREFIX_CACHE_MB,
    ) -> None:
        if sae.d_in != backend.d_model:
            raise ModelError(
                f"The SAE reads residuals of {sae.d_in} dimensions, the model's have {backend.d_model}: "
                "they do not belong together."
            )
        self.backend = backend
        self.sae = sae
        self.chat = chat
        self.prefix = PrefixStore(prefix_cache_mb * MB)
        self.reused_tokens = 0
        """Tokens of the last prompt that did not run again."""
        self._reader = FeatureReader(sae, decoder=decoder)
        self._prefill = Prefill(backend, self.prefix)

    @property
    def sae_clock(self) -> Clock:
        """The SAE's share of the time."""
        return self._reader.clock

    def prepare(self, prompt: str | TokenIds | Sequence[Mapping[str, Any]]) -> Prompt:
        """Token ids of a text, of messages, or as given, ending where the model goes on."""
        if isinstance(prompt, TokenIds):
            return self.chat.from_ids(prompt.ids)
        return self.chat.encode_text(prompt) if isinstance(prompt, str) else self.chat.render(prompt)

    @overload
    def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        should_stop: Callable[[], bool] = ...,
        prompt_features: Literal[False] = ...,
    ) -> Iterator[Step]: ...

    @overload
    def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        should_stop: Callable[[], bool] = ...,
        prompt_features: bool = ...,
    ) -> Iterator[PromptCell | Step]: ...

    def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        should_stop: Callable[[], bool] = _never,
        prompt_features: bool = False,
    ) -> Iterator[PromptCell | Step]:
        """Steps until the end of turn, a stop string, the token limit or `should_stop`.

        With `prompt_features`, the prompt's tokens come before them, each cell once it has run.
        `should_stop` is asked at every cell of the prompt that runs and at every token; stopped during the prompt,
        no step comes. Raises ContextOverflowError or PromptError at once, ModelError while running.
        """
        limit = self._room(prompt, sampling.max_tokens)
        sampler = Sampler(sampling, self.chat.vocabulary)
        return self._generate(prompt, sampler, sampling.stop, limit, should_stop, prompt_features)

    def encode(self, prompt: Prompt, *, should_stop: Callable[[], bool] = _never) -> list[EncodedToken]:
        """Every token of `prompt` with its features, by the same forward passes as in a generation.

        Stopped by `should_stop`, the tokens so far. Raises ContextOverflowError, PromptError or ModelError.
        """
        self._room(prompt, 0)
        cells = self._prompt_cells(prompt, self._begin(prompt), should_stop)
        return [token for cell in cells for token in cell.tokens]

    def score(
        self,
        prompt: Prompt,
        top: int,
        *,
        show_special: bool = True,
        should_stop: Callable[[], bool] = _never,
    ) -> list[ScoredToken]:
        """Every token of `prompt` with its log probability and the `top` likeliest others; nothing is generated.

        The texts of special tokens are empty unless shown.
        Stopped by `should_stop`, the tokens so far. Raises ContextOverflowError, PromptError or ModelError.
        """
        self._room(prompt, 0)
        detokenizer = self.chat.detokenizer(show_special=show_special)
        return score(self.backend, self.chat.token_bytes, prompt, top, detokenizer, should_stop)

    def _room(self, prompt: Prompt, max_tokens: int | None) -> int:
        """The number of tokens that may be generated."""
        used, context = len(prompt.ids), self.backend.context_length
        if not used:
            raise PromptError("The prompt is empty: there is no token to start from.")
        wanted = 1 if max_tokens is None else max_tokens
        if used + wanted > context:
            raise ContextOverflowError(used, wanted, context)
        return context - used if max_tokens is None else max_tokens

    def _begin(self, prompt: Prompt) -> Run:
        run = self._prefill.begin(prompt.ids)
        self.reused_tokens = run.reused_tokens
        return run

    def _prompt_cells(
        self, prompt: Prompt, run: Run, should_stop: Callable[[], bool]
    ) -> Iterator[PromptCell]:
        detokenizer = self.chat.detokenizer(show_special=True)
        start, before = 0, None
        for cell in run.cells(should_stop):
            readings = self._prefill.read(cell, self._reader)
            tokens = []
            for position, (acts, unexplained) in enumerate(readings, start):
                token = prompt.ids[position]
                text = detokenizer.step(token)
                if position == len(prompt.ids) - 1:
                    text += detokenizer.finish()
                tokens.append(EncodedToken(token, text, prompt.content[position], acts, unexplained))
            yield PromptCell(start, tuple(tokens), before)
            start, before = start + len(tokens), tokens[-1].acts

    def _generate(
        self,
        prompt: Prompt,
        sampler: Sampler,
        stop: Sequence[str],
        limit: int,
        should_stop: Callable[[], bool],
        prompt_features: bool,
    ) -> Iterator[PromptCell | Step]:
        run = self._begin(prompt)
        if prompt_features:
            yield from self._prompt_cells(prompt, run, should_stop)
        else:
            for _ in run.cells(should_stop):
                pass
        if run.last is not None:
            yield from self._answer(run, len(prompt.ids), sampler, stop, limit, should_stop)

    def _answer(
        self,
        run: Run,
        start: int,
        sampler: Sampler,
        stop: Sequence[str],
        limit: int,
        should_stop: Callable[[], bool],
    ) -> Iterator[Step]:
        detokenizer = self.chat.detokenizer()
        gate: TextGate[partial[Step]] = TextGate(stop)
        forward = run.last
        assert forward is not None
        acts = self._reader.read(forward.residual[-1:])[0].acts
        for index in range(limit):
            choice = sampler.choose(forward.logits, forward.numbers)
            is_end = choice.token in self.chat.end_ids
            forward = run.forward([choice.token])
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
            for left, (finished, final) in zip(range(len(passing) - 1, -1, -1), passing, strict=True):
                yield finished(text=final, finish_reason=None if left else reason)
            if reason is not None:
                return

    def _step(self, choice: Choice, index: int, prompt_tokens: int, **found: Any) -> partial[Step]:
        """A step but for its text and its finish, which are not known yet."""
        token_bytes = self.chat.token_bytes
        return partial(
            Step,
            token_index=index,
            token_id=choice.token,
            token_bytes=token_bytes(choice.token),
            position=prompt_tokens + index,
            logprob=choice.logprob,
            top_logprobs=tuple(TokenLogprob(i, token_bytes(i), value) for i, value in choice.top),
            prompt_tokens=prompt_tokens,
            **found,
        )
