"""How one more token is decoded: by the lean step where it is the same as the model's own forward pass, else by that.

Which it is, is settled once: a few tokens run both ways. What differs is refused, whatever it would win. What agrees
is used unless it is clearly slower, so that noise in the timing never moves the last bits of a seed's answer.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.models.cache import append, copy_out
from neuroscope.models.kernels import kernels
from neuroscope.models.lean import LeanStep
from neuroscope.models.lean_layers import NotLeanError
from neuroscope.models.packed import rounds_to

MODES = ("auto", "lean", "model")
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.03}
"""Largest distance of two ways to one vector, as a share of its length. The order of sums costs some 1e-5 in float32
and 0.03 in bfloat16; a wrong position, mask, norm or scale 0.3 and more.
"""
CLEARLY = 1.5
"""A way that is slower by less is as fast."""
PREFIX, STEPS, ROUNDS = 4, 2, 8

log = logging.getLogger(__name__)

Way = Callable[[int, int, Any], tuple[Tensor, Tensor]]
"""Token, position, cache -> logits [vocab] float32 and the residual [1, d_model]."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How tokens are decoded, and why."""

    why: str
    step: LeanStep | None = None
    """None: by the model's own forward pass."""

    def __str__(self) -> str:
        return f"{'model' if self.step is None else f'lean, {self.step.kernel}'} ({self.why})"


def choose(
    mode: str,
    model: Any,
    layer: int,
    context_length: int,
    new_cache: Callable[[], Any],
    forward: Callable[[list[int], Any], tuple[Tensor, Tensor]],
) -> Choice:
    """The way `mode` asks for; `forward` is the model's own pass over ids that are appended to a cache.

    Raises ModelError for a mode that is not known, and for `lean` where the lean step cannot be used.
    """
    if mode not in MODES:
        raise ModelError(f"decode {mode!r} is not known. Use {', '.join(MODES)}.")
    if mode == "model":
        return Choice("asked for")
    try:
        weight = model.get_input_embeddings().weight
        steps = [
            LeanStep(model, layer, context_length, kernel) for kernel in kernels(weight.device, weight.dtype)
        ]
        chosen = _measured(mode, steps, new_cache, forward, TOLERANCE.get(rounds_to(model), 0.0))
    except NotLeanError as error:
        chosen = Choice(str(error))
    except (ModelError, RuntimeError, AttributeError, TypeError) as error:
        chosen = Choice(f"the lean step fails: {error}")  # what this model is made of behaves otherwise
    if mode == "lean" and chosen.step is None:
        raise ModelError(f"decode lean cannot be used with this model: {chosen.why}. Set decode to auto.")
    log.info("decoding: %s", chosen)
    return chosen


def _measured(
    mode: str,
    steps: list[LeanStep],
    new_cache: Callable[[], Any],
    forward: Callable[[list[int], Any], Any],
    tolerance: float,
) -> Choice:
    weights = steps[0].weights
    ways: list[Way] = [*(step.run for step in steps), lambda token, _position, cache: forward([token], cache)]
    ids = [(7919 * i + 13) % weights.shape[0] for i in range(PREFIX + STEPS)]
    start = new_cache()
    if not steps[0].fits(start):
        raise NotLeanError("its cache keeps no single positions")
    forward(ids[:PREFIX], start)
    seconds = [math.inf] * len(ways)
    for _ in range(ROUNDS):
        found = [_run(way, ids, start, new_cache(), weights.device) for way in ways]
        seconds = [min(one, ran.seconds) for one, ran in zip(seconds, found, strict=True)]
        apart = [ran.distance(found[-1]) for ran in found]
        chosen = _best(mode, steps, seconds, apart, tolerance)
        if chosen.step is steps[0] or not any(one <= tolerance for one in apart[:-1]):
            break  # what is preferred and looks slow gets more chances: it may have been the machine
    return chosen


@dataclass(frozen=True, slots=True)
class _Ran:
    """What one way gave for a few tokens, and the shortest time of one."""

    outputs: list[tuple[Tensor, Tensor]]
    seconds: float

    def distance(self, other: _Ran) -> float:
        """The largest over tokens, logits and residuals; infinite where one is not finite."""
        pairs = zip(self.outputs, other.outputs, strict=True)
        return max(_distance(*pair) for both in pairs for pair in zip(*both, strict=True))


def _run(way: Way, ids: list[int], start: Any, cache: Any, device: torch.device) -> _Ran:
    saved = copy_out(start, 0, PREFIX)
    assert saved is not None
    append(cache, [saved])
    outputs, best = [], math.inf
    for position in range(PREFIX, len(ids)):
        began = time.perf_counter()
        outputs.append(way(ids[position], position, cache))
        _finish(device)
        best = min(best, time.perf_counter() - began)
    return _Ran(outputs, best)


def _best(
    mode: str, steps: list[LeanStep], seconds: list[float], apart: list[float], tolerance: float
) -> Choice:
    """The first of the steps that agrees with the model, the last of all, and that no other clearly beats."""
    agreeing = [number for number in range(len(steps)) if apart[number] <= tolerance]
    if not agreeing:
        return Choice(f"the lean step gives other numbers, {min(apart[:-1]):.2g} apart")
    fastest = min(seconds[number] for number in agreeing)
    number = next(number for number in agreeing if seconds[number] <= CLEARLY * fastest)
    times = f"{1e3 * seconds[number]:.1f} ms a token, the model's own pass {1e3 * seconds[-1]:.1f}"
    if mode == "auto" and seconds[number] > CLEARLY * seconds[-1]:
        return Choice(f"the lean step is slower: {times}")
    return Choice(times, steps[number])


def _finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _distance(found: Tensor, expected: Tensor) -> float:
    found, expected = found.float().flatten(), expected.float().flatten()
    if found.shape != expected.shape:
        return float("inf")
    apart = float((found - expected).norm() / expected.norm())
    return apart if math.isfinite(apart) else math.inf
