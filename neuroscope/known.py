"""What was measured about the features of the SAE in use: statistics and labels, as far as they are there and fit.

Wrong results are worse than none: what was made from another model, SAE or layer is not used, and what is
missing is said in words, with the command that mends it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from neuroscope import imported
from neuroscope.errors import ArtefactError
from neuroscope.imported import FiringPrior
from neuroscope.manifest import Fingerprint
from neuroscope.settings import Settings
from neuroscope.settings.commands import with_pairing
from neuroscope.stats import CalibrationStats, read_stats_document
from neuroscope.store import FeatureLabel, Results, open_results
from neuroscope.verification import FILE as VERIFICATION
from neuroscope.verification import Verification, read_verification

MEND = "Make them with: snakemake --cores 4 labels"


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Statistics and labels that fit, and what is missing."""

    results: Results | None
    stats: CalibrationStats | FiringPrior | None
    labels: tuple[str, ...]
    """One text a feature, `feature_4521` where there is no label."""
    label_sources: dict[str, int]
    """How many labels came from which source."""
    verification: Verification | None
    """What `neuroscope verify` found about this very pair."""
    degraded: tuple[str, ...]
    """What is missing, why, and which command mends it."""


def find_known(settings: Settings, used: Fingerprint) -> Known:
    """What `settings.results` holds about the model, SAE and layer that `used` describes.

    Raises ArtefactError for a stats file that the user named (`ranking.stats`) and that does not fit.
    """
    results: Results | None = None
    why = f"The results hold none. {MEND}"
    try:
        results = _fitting_results(settings.results / "results.duckdb", used)
    except ArtefactError as error:
        why = str(error)
    stats, degraded = _stats_in_use(settings, used, results, why)
    labels = results.labels() if results is not None else []
    if not labels:
        try:
            labels = imported_labels(settings, used.d_sae)
        except ArtefactError as error:
            why = str(error)
    if not labels:
        degraded.append(f"Features are shown by number, there are no labels. {why}")
    verification = fitting_verification(settings, used)
    if verification is not None and verification.off:
        degraded.append(
            f"Numbers are off: verification failed on {', '.join(verification.off)}. "
            "See what and why: neuroscope verify"
        )
    texts = {row.feature: row.label for row in labels}
    return Known(
        results=results,
        stats=stats,
        labels=tuple(texts.get(index, f"feature_{index}") for index in range(used.d_sae)),
        label_sources=dict(Counter(row.source for row in labels)),
        verification=verification,
        degraded=tuple(with_pairing(sentence, settings.pairing.name) for sentence in degraded),
    )


def imported_labels(settings: Settings, d_sae: int) -> list[FeatureLabel]:
    """The labels that were imported from Neuronpedia, for where the results hold none; they have no score.

    Raises ArtefactError for a damaged file, or one about another pair.
    """
    found = imported.read_imported_labels(settings.results, settings.pairing.neuronpedia, d_sae)
    best = found.best(settings.labels.priority).labels
    return [FeatureLabel(label.feature, label.label, label.source, label.confidence, None) for label in best]


def _stats_in_use(
    settings: Settings, used: Fingerprint, results: Results | None, missing: str
) -> tuple[CalibrationStats | FiringPrior | None, list[str]]:
    """The user's own statistics, else the results', else Neuronpedia's rates; and what is to be said of them."""
    if settings.ranking.stats is not None:
        return _own_stats(Path(settings.ranking.stats), used), []
    if results is not None:
        return _stats(results, settings.ranking.stratum)
    try:
        prior = imported.read_prior(settings.results, settings.pairing.neuronpedia, used.d_sae)
    except ArtefactError as error:
        prior, missing = None, str(error)
    if prior is None:
        return None, [f"The feature filter is off, there are no statistics. {missing}"]
    note = (
        f"The filter uses the firing rates that Neuronpedia publishes ({prior.about}), none were measured here; "
        f"surprise is unknown. {missing}"
    )
    return prior, [note]


def _fitting_results(path: Path, used: Fingerprint) -> Results:
    results = open_results(path)
    if differences := results.fingerprint().mismatches(used):
        results.close()
        raise ArtefactError(
            f"{path.name} is about something else and not used ({'; '.join(differences)}). {MEND}"
        )
    return results


def _stats(results: Results, stratum: str) -> tuple[CalibrationStats, list[str]]:
    """The statistics of `stratum`, else those of all texts with a sentence that says so."""
    if stratum in results.strata():
        return results.stats(stratum), []
    note = f"The filter uses the statistics of all texts: there are none of the stratum {stratum!r}."
    return results.stats("all"), [note]


def fitting_verification(settings: Settings, used: Fingerprint) -> Verification | None:
    """The report about this model, in as many bits, and this SAE; None for one about others, or of another version."""
    try:
        found, about = read_verification(settings.results / VERIFICATION)
    except ArtefactError:
        return None
    quantization = "none" if found.quantization is None else found.quantization.quantization
    return None if about.mismatches(used) or quantization != settings.quantization else found


def _own_stats(path: Path, used: Fingerprint) -> CalibrationStats:
    stats = CalibrationStats.from_json(path)
    if stats.d_sae != used.d_sae:
        raise ArtefactError(f"{path} is about {stats.d_sae:,} features, the SAE in use has {used.d_sae:,}.")
    written = read_stats_document(path).get("fingerprint")
    if written and (differences := Fingerprint.from_dict(written).mismatches(used)):
        raise ArtefactError(f"{path} is about something else: {'; '.join(differences)}.")
    return stats
