"""One answer being written: the job for the model, what is published about it, and what its requester reads.

A token's event is published before the requester can see the token. How tokens become an HTTP response is in
`completion.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from queue import Empty
from typing import TYPE_CHECKING

from gevent.queue import Queue

from neuroscope.errors import NeuroscopeError
from neuroscope.events import GenerationComplete, GenerationError
from neuroscope.server.jobs import Stoppable
from neuroscope.server.metrics import AnswerMeter, Metrics
from neuroscope.server.note import note_answer
from neuroscope.server.problems import Problem, given_up, shutting_down
from neuroscope.server.stream import FeatureStream, GeneratedToken, ReadPrompt
from neuroscope.steps import PromptCell

if TYPE_CHECKING:
    from neuroscope.engine import Engine
    from neuroscope.models.chat import Prompt
    from neuroscope.models.sampling_options import Sampling
    from neuroscope.server.loaded import Loaded
    from neuroscope.steps import Step

log = logging.getLogger(__name__)


class Generation(Stoppable):
    """A job for `Inference`. Its requester iterates over `steps()`.

    Raises PromptError when the prompt does not fit the model's context.
    """

    def __init__(
        self,
        completion_id: str,
        loaded: Loaded,
        prompt: Prompt,
        sampling: Sampling,
        *,
        stream: FeatureStream,
        metrics: Metrics,
        release: Callable[[], None],
        prompt_features: bool = False,
    ) -> None:
        super().__init__()
        self.completion_id = completion_id
        self.model = loaded.model
        self.prompt = prompt
        self.shutting_down = False
        self.cached_tokens = 0
        """Tokens of the prompt that an earlier request ran; known with the first token."""
        self._layer = loaded.layer
        self._degraded = loaded.degraded
        self._engine: Engine | None = loaded.engine
        self._results: Iterator[PromptCell | Step] = loaded.engine.generate(
            prompt, sampling, should_stop=self.should_stop, prompt_features=prompt_features
        )
        self._stream = stream
        self._release = release
        self._meter = AnswerMeter(metrics)
        self._request_id = note_answer(self)
        self.total_tokens = 0
        self._finish_reason: str | None = None
        self._unread: Queue[Step | Problem | None] = Queue()

    def results(self) -> Iterator[PromptCell | Step]:
        engine = self._engine
        assert engine is not None
        for result in self._results:
            self.cached_tokens = engine.reused_tokens
            yield result

    def receive(self, result: PromptCell | Step) -> None:
        if isinstance(result, PromptCell):
            self._stream.publish(ReadPrompt(self.completion_id, self._layer, result))
        else:
            self._receive_step(result)

    def _receive_step(self, step: Step) -> None:
        self.total_tokens += not step.is_end
        self._meter.step(step)
        self._stream.publish(GeneratedToken(self.completion_id, self._layer, step))
        if step.finish_reason is not None:
            self._complete(step.finish_reason)
        self._unread.put(step)

    def finish(self, error: BaseException | None) -> None:
        self._release()
        self._engine, self._results = None, iter(())  # a slow reader may hold this for long
        if error is not None:
            self._meter.end("error")
        if isinstance(error, Problem):  # said in the log by whoever gave the model up
            self._stream.publish(GenerationError(self.completion_id, self.model, error.message))
            self._unread.put(error)
        elif error is not None:
            log.error(
                "generation %s failed",
                self.completion_id,
                exc_info=error,
                extra={"request_id": self._request_id, "completion_id": self.completion_id},
            )
            error.__traceback__ = None  # it would keep the failed pass's tensors
            message = _sentence(error)
            self._stream.publish(GenerationError(self.completion_id, self.model, message))
            self._unread.put(Problem(500, message, code="generation_failed"))
        elif self._finish_reason is None:
            self._complete("cancelled")
        if self.shutting_down:
            self._unread.put(shutting_down())
        elif self._finish_reason == "cancelled":
            self._unread.put(given_up("answer"))
        self._unread.put(None)

    def steps(self, silence_s: float) -> Iterator[Step | None]:
        """The tokens in order, and None after every `silence_s` without one. Raises Problem when it fails."""
        while True:
            try:
                item = self._unread.get(timeout=silence_s)
            except Empty:
                yield None
                continue
            if isinstance(item, Problem):
                raise item
            if item is None:
                return
            yield item

    def _complete(self, finish_reason: str) -> None:
        self._finish_reason = (
            "shutdown" if finish_reason == "cancelled" and self.shutting_down else finish_reason
        )
        self._meter.end(self._finish_reason)
        self._stream.publish(
            GenerationComplete(
                self.completion_id, self.model, self.total_tokens, self._finish_reason, self._degraded
            )
        )


def _sentence(error: BaseException) -> str:
    """An expected failure speaks for itself; what another exception says may be private."""
    if isinstance(error, NeuroscopeError):
        return str(error)
    return f"The model failed on this request ({type(error).__name__}); the server's log says why."
