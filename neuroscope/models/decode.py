"""How one more token is decoded: by the lean step where it is the same as the model's own forward pass, else by that.

Which it is, is settled once at the start: a few tokens run both ways, and the first of the ways that gives the model's
numbers is used. Between kernels only numbers decide. `kernels` has its ways in order for each device and dtype, by what
was measured of them; a stopwatch at the start would choose otherwise on a busy machine, and with the way the last bits
of the numbers change, and so the text that a seed gives.

On a CUDA device the lean step as a graph (`graphed`) is tried after it, and there a stopwatch is asked as well. To
launch some 500 kernels one by one takes the processor several times as long as the device takes for most of them: the
graph is faster by far or, where something is wrong with it, slower, and which of the two does not hang on what else the
machine does.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.models.cache import append, copy_out
from neuroscope.models.graphed import GraphStep, Recorder
from neuroscope.models.kernels import kernels
from neuroscope.models.lean import FAULTS, LeanStep
from neuroscope.models.lean_layers import NotLeanError
from neuroscope.models.packed import rounds_to

MODES = ("auto", "graph", "lean", "model")
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.03}
"""Largest distance of two ways to one vector, as a share of its length. The order of sums costs some 1e-5 in float32
and 0.03 in bfloat16; a wrong position, mask, norm or scale 0.3 and more.
"""
PREFIX, STEPS = 4, 2
TIMED = 8
"""Steps of each way that are measured, behind one that may take longer."""

log = logging.getLogger(__name__)

Way = Callable[[int, int, Any], tuple[Tensor, Tensor]]
"""Token, position, cache -> logits [vocab] float32 and the residual [1, d_model]."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How tokens are decoded, and why."""

    why: str
    step: LeanStep | GraphStep | None = None
    """None: by the model's own forward pass."""

    def __str__(self) -> str:
        return f"{self.way} ({self.why})"

    @property
    def way(self) -> str:
        """In a word or two."""
        return "model" if self.step is None else self.step.way


def choose(
    mode: str,
    model: Any,
    layer: int,
    context_length: int,
    new_cache: Callable[[], Any],
    forward: Callable[[list[int], Any], tuple[Tensor, Tensor]],
    recorder: Recorder | None = None,
) -> Choice:
    """The way `mode` asks for; `forward` is the model's own pass over ids that are appended to a cache.

    Without `recorder` nothing can be recorded on the model's device. Raises ModelError for a mode that is not known,
    and for `lean` and `graph` where that cannot be used.
    """
    if mode not in MODES:
        raise ModelError(f"decode {mode!r} is not known. Use {', '.join(MODES)}.")
    if mode == "model":
        return Choice("asked for")
    if mode == "graph" and recorder is None:
        raise ModelError(
            f"decode graph needs a CUDA device, and the model is on {model.device}. Set decode to auto."
        )
    try:
        trial = _Trial(model, layer, context_length, new_cache, forward)
        chosen = trial.first_that_agrees()
        if recorder is not None and mode != "lean" and isinstance(chosen.step, LeanStep):
            chosen = trial.graphed(chosen, chosen.step, recorder, timed=mode == "auto")
    except NotLeanError as error:
        chosen = Choice(str(error))
    except FAULTS as error:
        chosen = Choice(f"the lean step fails: {error}")
    if (mode == "lean" and chosen.step is None) or (
        mode == "graph" and not isinstance(chosen.step, GraphStep)
    ):
        raise ModelError(f"decode {mode} cannot be used with this model: {chosen.why}. Set decode to auto.")
    log.info("decoding: %s", chosen)
    return chosen


class _Trial:
    """A few tokens, by the model's own pass and by others."""

    def __init__(
        self,
        model: Any,
        layer: int,
        context_length: int,
        new_cache: Callable[[], Any],
        forward: Callable[[list[int], Any], tuple[Tensor, Tensor]],
    ) -> None:
        self._model, self._layer, self._context_length = model, layer, context_length
        self._new_cache, self._forward = new_cache, forward
        self._weight: Tensor = model.get_input_embeddings().weight
        self._ids = [(7919 * i + 13) % self._weight.shape[0] for i in range(PREFIX + max(STEPS, 1 + TIMED))]
        self._start = new_cache()
        self._expected: list[tuple[Tensor, Tensor]] = []

    def first_that_agrees(self) -> Choice:
        """The lean step by the first kernel with which it gives the model's numbers, or why there is none."""
        ways = kernels(self._weight.device, self._weight.dtype)
        step = LeanStep(self._model, self._layer, self._context_length, ways[0])
        if not step.fits(self._start):
            raise NotLeanError("its cache keeps no single positions")
        self._forward(self._ids[:PREFIX], self._start)
        self._expected = self._run(lambda token, _position, cache: self._forward([token], cache))
        reasons = []
        for kernel in ways:
            try:
                step = LeanStep(self._model, self._layer, self._context_length, kernel)
                apart = self._apart(step.run)
            except FAULTS as error:
                reasons.append(f"the lean step fails: {error}")
                continue
            if apart <= self._tolerance:
                return Choice(f"{apart:.1g} from the model's own pass", step)
            reasons.append(f"the lean step gives other numbers, {apart:.2g} apart")
        return Choice(reasons[0])

    def graphed(self, lean: Choice, step: LeanStep, recorder: Recorder, *, timed: bool) -> Choice:
        """The lean step as a graph where that gives the model's numbers and, if `timed`, no later; else why not."""
        try:
            graph = GraphStep(step, self._context_length, recorder)
            apart = self._apart(graph.replay)
            if apart > self._tolerance:
                return Choice(f"{lean.why}; CUDA graphs give other numbers, {apart:.2g} apart", step)
            why = f"{apart:.1g} from the model's own pass"
            if not timed:
                return Choice(why, graph)
            slow, fast = self._milliseconds([step.run, graph.replay], recorder.synchronize)
        except FAULTS as error:
            return Choice(f"{lean.why}; CUDA graphs fail: {error}", step)
        times = f"{fast:.2f} ms a token, the lean step {slow:.2f}"
        if fast > slow:
            return Choice(f"{lean.why}; CUDA graphs take {times}", step)
        return Choice(f"{why}; {times}", graph)

    @property
    def _tolerance(self) -> float:
        return TOLERANCE.get(rounds_to(self._model), 0.0)

    def _begun(self) -> Any:
        """A cache of its own that holds the prefix."""
        saved, cache = copy_out(self._start, 0, PREFIX), self._new_cache()
        assert saved is not None
        append(cache, [saved])
        return cache

    def _run(self, way: Way) -> list[tuple[Tensor, Tensor]]:
        """What one way gives for the tokens behind the prefix."""
        cache = self._begun()
        return [way(self._ids[position], position, cache) for position in range(PREFIX, PREFIX + STEPS)]

    def _apart(self, way: Way) -> float:
        """The largest distance over tokens, logits and residuals; infinite where one is not finite."""
        pairs = zip(self._run(way), self._expected, strict=True)
        return max(distance(*pair) for both in pairs for pair in zip(*both, strict=True))

    def _milliseconds(self, ways: Sequence[Way], synchronize: Callable[[], None]) -> list[float]:
        """What a token takes by each of the ways, which take turns: the median of some."""
        caches = [self._begun() for _ in ways]
        times: list[list[float]] = [[] for _ in ways]
        for position in range(PREFIX, PREFIX + 1 + TIMED):
            for way, cache, taken in zip(ways, caches, times, strict=True):
                synchronize()
                start = perf_counter()
                way(self._ids[position], position, cache)
                synchronize()
                taken.append(1e3 * (perf_counter() - start))
        return [median(taken[1:]) for taken in times]


def distance(found: Tensor, expected: Tensor) -> float:
    """As a share of the length of `expected`; infinite where something is not finite or has another shape."""
    found, expected = found.float().flatten(), expected.float().flatten()
    if found.shape != expected.shape:
        return float("inf")
    apart = float((found - expected).norm() / expected.norm())
    return apart if math.isfinite(apart) else math.inf
