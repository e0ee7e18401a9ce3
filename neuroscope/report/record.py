"""Everything the report says, as one record: what the plots draw, the page shows and `report.json` holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from neuroscope.manifest import Fingerprint
from neuroscope.report.drift import Drift
from neuroscope.report.numbers import ActiveFeatures, Coverage, Firing, Missing, Scores, Strength
from neuroscope.verification import Verification

PAGE = "report.html"
FOLDER = "report"
RECORD = "report.json"
"""In a results folder: the page, and the folder of the plots and the record."""
NOT_IN_JSON = ("log2_ratio", "where", "verification")
"""Fields of one entry a feature; and what verification.json holds."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One kind of text, as the sweep read it."""

    name: str
    documents: int | None
    tokens: int
    l0: float
    """Mean number of active features."""
    silent: int
    """Features that never fired in it."""
    fvu: float | None
    """None where `neuroscope verify` has not measured it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The labels of one source."""

    name: str
    labelled: int
    """Features it has a label for."""
    shown: int
    """Features whose label is shown, by the priority of the sources."""


@dataclass(frozen=True, slots=True)
class Notable:
    """A feature worth a look, and the figure that makes it so."""

    feature: int
    label: str
    source: str | None
    figure: str


@dataclass(frozen=True, slots=True)
class Group:
    """Features worth a look for one reason."""

    title: str
    meaning: str
    features: tuple[Notable, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What is known about a pairing's features."""

    pairing: str
    description: str
    fingerprint: Fingerprint
    published_l0: float | None
    min_score: float
    strata: tuple[Stratum, ...]
    """`all` last."""
    firing: Firing | Missing
    active_features: tuple[ActiveFeatures, ...] | Missing
    strength: Strength | Missing
    scores: tuple[Scores, ...] | Missing
    coverage: Coverage | Missing
    drift: Drift | Missing
    sources: tuple[Source, ...]
    notable: tuple[Group, ...]
    verification: Verification | None
    warnings: tuple[str, ...]
    """What to know before a number is believed, each with the command that helps, where one does."""

    @property
    def overall(self) -> Stratum:
        return self.strata[-1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a missing part is `{"missing": reason}`."""
        found: dict[str, Any] = _plain(self)
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, Missing):
        return {"missing": value.reason}
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in NOT_IN_JSON]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
