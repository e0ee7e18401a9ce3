"""What both servers share: what is loaded, whether it is ready, the model's queue and the features stream.

Loading and the model run in one native thread, tokenizing in a second, database queries in a third: the hub
waits for none of them, and a look at a feature for no long prompt. What is loaded from where is said in `loading.py`.
"""

from __future__ import annotations

import gc
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import gevent

from neuroscope.models.token_ids import TokenIds
from neuroscope.server.connection import ClientWatch
from neuroscope.server.fanout import Fanout
from neuroscope.server.generation import Generation
from neuroscope.server.inference import Inference, NativeThread
from neuroscope.server.jobs import Once
from neuroscope.server.loaded import Load, Loaded
from neuroscope.server.metrics import Metrics
from neuroscope.server.problems import RETRY_AFTER_S, Problem, given_up, shutting_down
from neuroscope.server.stream import Entry, FeatureStream, ReadPrompt
from neuroscope.server.subscribers import Subscribers
from neuroscope.server.tickets import Tickets
from neuroscope.server.views import EventWriter, View
from neuroscope.server.watchdog import NoEngine, Sickness

if TYPE_CHECKING:
    from neuroscope.engine import Engine
    from neuroscope.known import Known
    from neuroscope.models.chat import Prompt
    from neuroscope.models.sampling_options import Sampling
    from neuroscope.ranking import Ranking
    from neuroscope.sessions import Sessions
    from neuroscope.settings import Serve
    from neuroscope.steps import EncodedToken

log = logging.getLogger(__name__)

Watch = Callable[[Callable[[], None]], ClientWatch]
"""Makes a watch on the client of a request, which calls the function it is given when the client has left."""
T = TypeVar("T")


class Service:
    """One per process. Made in the worker, after the fork."""

    def __init__(self, serve: Serve, ranking: Ranking, sessions: Sessions | None = None) -> None:
        self.serve = serve
        self.ranking = ranking
        self.sessions = sessions
        """Recorded answers; asked in the lookups thread only."""
        self.stream = FeatureStream(serve.ring)
        self.fanout = Fanout(self.stream, self.write_event)
        self.subscribers = Subscribers(serve.max_streams)
        self.tickets = Tickets()
        self.model_thread = NativeThread()
        self.lookups = NativeThread()
        self.tokenizing = NativeThread()
        self.inference = Inference(self.model_thread, serve.queue)
        self.started = int(time.time())
        self.stage = "starting"
        self.stopping = False
        self.metrics = Metrics(self)
        self.sickness: Sickness | None = None
        """Why there is no engine any more; None before there is one, and while it is well."""
        self._generations: set[Generation] = set()
        self._loaded: Loaded | None = None
        self._writer: EventWriter | None = None

    def load(self, load: Load) -> Loaded:
        """Load away from the hub; until it is done `loaded` raises. Whatever `load` raises is raised here."""
        if self._loaded is None:  # later there are answers meanwhile, and loading may hang
            gc.disable()  # a fifth of the start would be looking for garbage among what stays
        try:
            loaded = self.model_thread.call(load, self._enter_stage)
            self._use(loaded)
            self.model_thread.call(_set_apart)
        finally:
            gc.enable()
        self.sickness = None
        self.stage = "ready"
        return loaded

    def _use(self, loaded: Loaded) -> None:
        """In one step, for the hub: no event and no answer mixes what was known before with what is known now."""
        before = self._loaded
        self._writer = EventWriter(loaded.labels, loaded.stats, self.stream)
        self._loaded = loaded
        if before is not None and before.results is not None and before.results is not loaded.results:
            self.lookups.call(before.results.close)  # after the last lookup that reads it

    @property
    def serving(self) -> Loaded | None:
        """What is loaded, also while the server shuts down."""
        return self._loaded

    @property
    def width(self) -> int | None:
        """How many features the SAE has; None while it is not loaded."""
        return None if self._loaded is None else self._loaded.width

    def use_known(self, known: Known) -> None:
        """Put what was read anew in the place of what was known about the features."""
        assert self._loaded is not None
        self._use(self._loaded.with_known(known))

    def look_up(self, question: Callable[[Loaded], T]) -> T:
        """`question` of what is loaded by then, away from the hub. Raises ArtefactError for unreadable results."""
        _ = self.loaded

        def ask() -> T:
            assert self._loaded is not None
            return question(self._loaded)

        return self.lookups.call(ask)

    @property
    def is_ready(self) -> bool:
        return self._loaded is not None and self.sickness is None and not self.stopping

    def give_engine_up(self, sickness: Sickness, running: Problem) -> None:
        """Go on without the engine, and with a new thread; the running job ends with `running`.

        What is known about features stays. Nothing here holds the old engine afterwards.
        """
        self.sickness = sickness
        self.stage = "given up"
        engine = cast("Engine", NoEngine(sickness.problem))
        self._loaded = replace(cast("Loaded", self._loaded), engine=engine)
        self.model_thread = NativeThread()
        self.inference.replace_thread(self.model_thread, running=running, waiting=sickness.problem)

    def refuse_when_stopping(self) -> None:
        """Raise Problem 503 while the server shuts down."""
        if self.stopping:
            raise shutting_down()

    def free_engine(self) -> None:
        """Have the memory of an engine that was given up freed, as far as nothing holds it."""
        self.model_thread.call(_collect)

    @property
    def loaded(self) -> Loaded:
        """Raises Problem 503 while loading and while shutting down; without an engine, on use of the engine."""
        self.refuse_when_stopping()
        if self._loaded is None:
            message = f"The model is still loading ({self.stage})."
            raise Problem(503, message, code="loading", retry_after_s=RETRY_AFTER_S)
        return self._loaded

    @property
    def writer(self) -> EventWriter:
        if self._writer is None:
            _ = self.loaded
        assert self._writer is not None
        return self._writer

    def write_event(self, entry: Entry, view: View) -> bytes:
        block = self.writer.write(entry, view)
        if isinstance(entry.published, ReadPrompt):  # many tokens at once: others may go on in between
            gevent.sleep(0)
        return block

    def log_prompt(self, asked: list[Any] | str | TokenIds) -> None:
        """Where `serve.log_prompts` asks for it."""
        if self.serve.log_prompts:
            given = asked.ids if isinstance(asked, TokenIds) else asked
            log.info("prompt: %s", json.dumps(given, ensure_ascii=False))

    def prepare(self, asked: list[Any] | str | TokenIds) -> Prompt:
        """Tokenize away from the hub. Raises PromptError."""
        return self.tokenizing.call(self.loaded.engine.prepare, asked)

    def admit(self, prepare: Callable[[], Prompt], watch: Watch) -> tuple[Prompt, Callable[[], None]]:
        """A place in the queue, then the prompt, made away from the hub. Returns also what gives the place back.

        A client that leaves meanwhile, as `watch` notices, leaves its place at once; no prompt is begun for it.
        Raises Problem 429 and whatever `prepare` raises.
        """
        release = self.inference.take_place()
        leaving = watch(release)
        try:
            prompt = self.tokenizing.call(lambda: None if leaving.gone else prepare())
            if prompt is None or leaving.gone:
                raise given_up("request")
        except BaseException:
            release()
            raise
        finally:
            leaving.stop()
        return prompt, release

    def text_of(self, prompt: Prompt) -> str:
        """Back to text, away from the hub."""
        return self.tokenizing.call(self.loaded.engine.chat.text_of, prompt)

    def begin(
        self,
        prefix: str,
        prompt: Prompt,
        sampling: Sampling,
        release: Callable[[], None],
        *,
        prompt_features: bool = False,
    ) -> Generation:
        """Queue one answer. `release` gives its place in the queue back when it has ended.

        Raises PromptError when the prompt does not fit, and has then given the place back.
        """

        def ended() -> None:
            self._generations.discard(generation)
            release()

        name = prefix + secrets.token_hex(12)
        try:
            generation = Generation(
                name,
                self.loaded,
                prompt,
                sampling,
                stream=self.stream,
                metrics=self.metrics,
                release=ended,
                prompt_features=prompt_features,
            )
        except BaseException:
            release()
            raise
        self._generations.add(generation)
        self.inference.submit(generation)
        return generation

    def is_answering(self, completion_id: str) -> bool:
        """Whether this answer is being written, or waits to be."""
        return any(generation.completion_id == completion_id for generation in self._generations)

    def encode(self, prepare: Callable[[], Prompt], watch: Watch) -> list[EncodedToken]:
        """The features of every token of the prompt that `prepare` makes, in the model's queue."""
        prompt, release = self.admit(prepare, watch)
        try:
            run = self.loaded.engine.encode
        except BaseException:
            release()
            raise
        job = Once(lambda is_given_up: run(prompt, should_stop=is_given_up), release)
        self.inference.submit(job)
        watching = watch(lambda: self.inference.cancel(job))
        try:
            encoded = job.wait()
        finally:
            watching.stop()
        self.metrics.encoded_tokens.inc(len(encoded))
        return encoded

    def stop(self, patience_s: float) -> None:
        """End every answer at its next token, or after `patience_s` without one, then every stream.

        First `serve.drain_s` are waited.
        """
        self.stopping = True
        if self.serve.drain_s:
            self.inference.wait_idle(self.serve.drain_s)
        for generation in list(self._generations):
            generation.shutting_down = True
        self.inference.cancel_all()
        if not self.inference.wait_idle(patience_s):
            self.inference.abandon()
        self.stream.close()

    def _enter_stage(self, stage: str) -> None:
        self.stage = stage


def _set_apart() -> None:
    """Have the garbage collector leave alone what was loaded: 450,000 objects, 0.2 s in which no token comes."""
    gc.collect()
    gc.freeze()


def _collect() -> None:
    gc.unfreeze()
    gc.collect()
