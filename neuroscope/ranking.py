"""Which of a token's active features are shown, and in which order.

One function for every subscriber and for the library: it sees one token's sparse activations and the
calibration statistics, and knows nothing of models, labels or the wire.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from neuroscope.errors import ConfigError

if TYPE_CHECKING:
    from neuroscope.sae.autoencoder import SparseActs

FILTERS = ("none", "frequency", "surprise", "combined", "frequency_surprise")
"""`combined` is the original specification's "frequency filter, then rank by activation", which by its own
words equals `frequency`; `frequency_surprise` is the same filter ranked by surprise."""

_DROPS_FREQUENT = frozenset({"frequency", "combined", "frequency_surprise"})
_ORDERS_BY_SURPRISE = frozenset({"surprise", "frequency_surprise"})


class FiringStats(Protocol):
    """What ranking asks of statistics, whoever measured them."""

    @property
    def firing_rate(self) -> npt.NDArray[np.float64]:
        """Share of tokens on which a feature is active, [d_sae]; NaN where unknown."""

    def surprise(self, indices: npt.NDArray[Any], activations: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """z-score of each activation; NaN where unknown."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How a reader wants features filtered and ordered. Hashable, so that equal settings are ranked once."""

    filter: str = "frequency"
    threshold: float = 0.5
    """Largest firing rate that is kept; a feature is dropped when it fires on strictly more of the tokens."""
    top_k: int = 10
    min_activation: float = 0.0
    only: frozenset[int] | None = None
    """Show these features alone, when they fire."""

    def __post_init__(self) -> None:
        if self.filter not in FILTERS:
            raise ConfigError(
                f"ranking filter {self.filter!r} is unknown; choose one of {', '.join(FILTERS)}."
            )
        _check("threshold", self.threshold, lambda value: 0 <= value <= 1, "a share of tokens from 0 to 1")
        _check("top_k", self.top_k, lambda value: value == int(value) >= 1, "a whole number of 1 or more")
        _check("min_activation", self.min_activation, lambda value: value >= 0, "a number of 0 or more")

    @property
    def drops_frequent(self) -> bool:
        """Whether features above the threshold are left out."""
        return self.filter in _DROPS_FREQUENT

    @property
    def orders_by_surprise(self) -> bool:
        return self.filter in _ORDERS_BY_SURPRISE


def _check(name: str, value: float, holds: Callable[[float], bool], accepted: str) -> None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or not holds(value):
        raise ConfigError(f"ranking {name} is {value!r}; it must be {accepted}.")


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The features shown for one token, best first."""

    indices: npt.NDArray[np.int32]  # [kept]
    activations: npt.NDArray[np.float32]  # [kept]
    surprise: (
        npt.NDArray[np.float64] | None
    )  # [kept], NaN where too few firings are known; None without stats
    filtered_count: int
    """Features the filter took out before `top_k` were found: those a reader would otherwise have seen."""


def select(acts: SparseActs, ranking: Ranking, stats: FiringStats | None) -> Selection:
    """Rank one token's active features, drop those the filter refuses, keep the first `top_k`.

    Without `stats` every filter behaves as `none`; the caller says so. A feature of unknown rate
    is kept. Features with unknown surprise come after those with a score, by activation. Ties go to the lower index.
    """
    indices, activations = acts.indices, acts.values
    if ranking.min_activation > 0 or ranking.only is not None:
        wanted = activations >= ranking.min_activation
        if ranking.only is not None:
            wanted &= np.isin(indices, np.fromiter(ranking.only, dtype=np.int64, count=len(ranking.only)))
        indices, activations = indices[wanted], activations[wanted]

    # The features come by index, and sorts keep what is equal in its order. Few operations: behind a model's pass each
    # takes ten times as long as it does alone.
    surprise = None if stats is None else stats.surprise(indices, activations)
    if surprise is not None and ranking.orders_by_surprise:
        order = np.lexsort((-activations, -surprise))  # the last key weighs most; what is unknown comes last
    else:
        order = (-activations).argsort(kind="stable")

    if stats is not None and ranking.drops_frequent:
        dropped = stats.firing_rate[indices[order]] > ranking.threshold
        shown = np.flatnonzero(~dropped)[: ranking.top_k]
        walked = int(shown[-1]) + 1 if len(shown) == ranking.top_k else len(order)
        chosen = order[shown]
    else:
        chosen = order[: ranking.top_k]
        walked = len(chosen)
    return Selection(
        indices=indices[chosen],
        activations=activations[chosen],
        surprise=None if surprise is None else surprise[chosen],
        filtered_count=walked - len(chosen),
    )
