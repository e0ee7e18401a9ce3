"""What pages and lists about features are made of: asked of a running server's `Loaded`, or of results alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neuroscope.imported import FiringPrior
    from neuroscope.known import Known
    from neuroscope.stats import CalibrationStats
    from neuroscope.store import Results


class Described(Protocol):
    """An SAE and what is known about its features; no model is needed for that. Fields mean what `Loaded`'s do."""

    @property
    def layer(self) -> int: ...
    @property
    def sae_id(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def stats(self) -> CalibrationStats | FiringPrior | None: ...
    @property
    def results(self) -> Results | None: ...
    @property
    def neuronpedia(self) -> tuple[str, str] | None: ...
    @property
    def degraded(self) -> tuple[str, ...]: ...
    @property
    def known(self) -> Known | None: ...
