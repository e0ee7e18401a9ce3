"""How one more token is decoded: by the lean step where it is the same as the model's own forward pass, else by that.

Which it is, is settled once at the start: a few tokens run both ways, and the first of the ways that gives the model's
numbers is used. Only numbers decide. `kernels` has its ways in order for each device and dtype, by what was measured of
them; a stopwatch at the start would choose otherwise on a busy machine, and with the way the last bits of the numbers
change, and so the text that a seed gives.
"""

from __future__ import annotations

import logging
import math
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
PREFIX, STEPS = 4, 2

FAULTS = (ModelError, RuntimeError, AttributeError, TypeError)
"""What is raised where the parts of a model behave otherwise than was expected of them."""

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
        return f"{self.way} ({self.why})"

    @property
    def way(self) -> str:
        """In a word or two."""
        return "model" if self.step is None else f"lean, {self.step.kernel}"


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
        chosen = _first_that_agrees(model, layer, context_length, new_cache, forward)
    except NotLeanError as error:
        chosen = Choice(str(error))
    except FAULTS as error:
        chosen = Choice(f"the lean step fails: {error}")
    if mode == "lean" and chosen.step is None:
        raise ModelError(f"decode lean cannot be used with this model: {chosen.why}. Set decode to auto.")
    log.info("decoding: %s", chosen)
    return chosen


def _first_that_agrees(
    model: Any,
    layer: int,
    context_length: int,
    new_cache: Callable[[], Any],
    forward: Callable[[list[int], Any], Any],
) -> Choice:
    """The lean step by the first kernel with which it gives the model's numbers, or why there is none."""
    weight = model.get_input_embeddings().weight
    ids = [(7919 * i + 13) % weight.shape[0] for i in range(PREFIX + STEPS)]
    ways = kernels(weight.device, weight.dtype)
    start, step = new_cache(), LeanStep(model, layer, context_length, ways[0])
    if not step.fits(start):
        raise NotLeanError("its cache keeps no single positions")
    forward(ids[:PREFIX], start)
    expected = _run(lambda token, _position, cache: forward([token], cache), ids, start, new_cache())
    reasons = []
    for kernel in ways:
        try:
            step = LeanStep(model, layer, context_length, kernel)
            apart = _apart(_run(step.run, ids, start, new_cache()), expected)
        except FAULTS as error:
            reasons.append(f"the lean step fails: {error}")
            continue
        if apart <= TOLERANCE.get(rounds_to(model), 0.0):
            return Choice(f"{apart:.1g} from the model's own pass", step)
        reasons.append(f"the lean step gives other numbers, {apart:.2g} apart")
    return Choice(reasons[0])


def _run(way: Way, ids: list[int], start: Any, cache: Any) -> list[tuple[Tensor, Tensor]]:
    """What one way gives for the tokens behind the prefix, which is in `start` and put into `cache`."""
    saved = copy_out(start, 0, PREFIX)
    assert saved is not None
    append(cache, [saved])
    return [way(ids[position], position, cache) for position in range(PREFIX, len(ids))]


def _apart(found: list[tuple[Tensor, Tensor]], expected: list[tuple[Tensor, Tensor]]) -> float:
    """The largest distance over tokens, logits and residuals; infinite where one is not finite."""
    pairs = zip(found, expected, strict=True)
    return max(distance(*pair) for both in pairs for pair in zip(*both, strict=True))


def distance(found: Tensor, expected: Tensor) -> float:
    """As a share of the length of `expected`; infinite where something is not finite or has another shape."""
    found, expected = found.float().flatten(), expected.float().flatten()
    if found.shape != expected.shape:
        return float("inf")
    apart = float((found - expected).norm() / expected.norm())
    return apart if math.isfinite(apart) else math.inf
