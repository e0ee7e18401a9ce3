"""Reads what the report tells: results.duckdb, with the report of its sweep in it, and verification.json beside it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from neuroscope.errors import ArtefactError, made_anew
from neuroscope.known import fitting_verification
from neuroscope.manifest import Fingerprint
from neuroscope.report import numbers
from neuroscope.report.drift import drift
from neuroscope.report.notable import notable
from neuroscope.report.record import Report, Source, Stratum
from neuroscope.report.told import warnings
from neuroscope.settings import Settings
from neuroscope.settings.commands import with_pairing
from neuroscope.stats import CalibrationStats
from neuroscope.store import Results, open_results
from neuroscope.verification import FILE as VERIFICATION
from neuroscope.verification import Verification

ALL = "all"
"""The stratum that is the sum of the others."""


def read_report(settings: Settings, database: Path) -> Report:
    """Raises ArtefactError when the results are missing, damaged or of another version."""
    with open_results(database) as results:
        fingerprint = results.fingerprint()
        verification = fitting_verification(settings, fingerprint)
        try:
            sweep = results.meta().get("sweep") or {}
            found = _read(settings, results, sweep, verification)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtefactError(
                f"{database} holds no report of a sweep ({error!r}). {made_anew()}"
            ) from error
    found = replace(found, fingerprint=_without_folders(fingerprint, settings.root))
    there = os.path.lexists(settings.results / VERIFICATION)
    told = (with_pairing(sentence, found.pairing) for sentence in warnings(found, sweep, there))
    return replace(found, warnings=tuple(told))


def _read(
    settings: Settings, results: Results, sweep: Mapping[str, Any], verification: Verification | None
) -> Report:
    """Without warnings."""
    strata = {name: results.stats(name) for name in results.strata()}
    of_all = strata.pop(ALL)
    swept = sweep.get("strata", {})
    labels = results.labels()
    shown = Counter(label.source for label in labels)
    between = drift(strata, settings.ranking.stratum)
    histograms = {name: swept.get(name, {}).get("l0_histogram", ()) for name in strata or (ALL,)}
    published = settings.pairing.published
    coverage = [(point["tokens"], point["features"]) for point in sweep.get("coverage", ())]
    return Report(
        pairing=settings.pairing.name,
        description=settings.pairing.description,
        fingerprint=results.fingerprint(),
        published_l0=None if published is None else published.l0,
        min_score=settings.labels.min_score,
        strata=tuple(
            _stratum(name, stats, swept.get(name, {}), verification)
            for name, stats in {**strata, ALL: of_all}.items()
        ),
        firing=numbers.firing(of_all),
        active_features=numbers.active_features(histograms),
        strength=numbers.strength(of_all),
        scores=numbers.scores(results.scores()),
        coverage=numbers.coverage(coverage, of_all.d_sae),
        drift=between,
        sources=tuple(Source(name, count, shown[name]) for name, count in results.label_counts().items()),
        notable=notable(labels, of_all, between),
        verification=verification,
        warnings=(),
    )


def _stratum(
    name: str, stats: CalibrationStats, swept: Mapping[str, Any], verification: Verification | None
) -> Stratum:
    measured = None
    if verification is not None:
        measured = verification.overall if name == ALL else verification.strata.get(name)
    return Stratum(
        name=name,
        documents=swept.get("documents"),
        tokens=stats.n_tokens,
        l0=float(stats.firing_rate.sum()),
        silent=int((stats.n_fired == 0).sum()),
        fvu=None if measured is None else measured.fvu,
    )


def _without_folders(fingerprint: Fingerprint, root: Path) -> Fingerprint:
    """Without this machine's folders: a report is shown to others."""
    return replace(fingerprint, model=_place(fingerprint.model, root), sae=_place(fingerprint.sae, root))


def _place(name: str, root: Path) -> str:
    """A file of the repository named from there, any other by its last folder; other sources as they are."""
    path = PurePath(name)
    if not path.is_absolute():
        return name
    return str(path.relative_to(root)) if path.is_relative_to(root) else f".../{'/'.join(path.parts[-2:])}"
