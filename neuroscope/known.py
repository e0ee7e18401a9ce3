"""What was measured about the features of the SAE in use: statistics and labels, as far as they are there and fit.

Wrong results are worse than none: what was made from another model, SAE or layer is not used, and what is
missing is said in words, with the command that mends it. What was read before stays known when its files go.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from neuroscope import imported
from neuroscope.errors import ArtefactError, NeuroscopeError, made_anew
from neuroscope.imported import FiringPrior
from neuroscope.manifest import Fingerprint
from neuroscope.settings import Settings
from neuroscope.settings.commands import with_pairing
from neuroscope.stats import CalibrationStats, read_stats_document
from neuroscope.store import FeatureLabel, Results, open_results
from neuroscope.verification import FILE as VERIFICATION
from neuroscope.verification import Verification, read_verification

MEND = "Make them with: snakemake --cores 4 labels"
STILL = "What was read before is still shown, until the next start."

Stats = CalibrationStats | FiringPrior
Seen = tuple[object, ...]
"""Which files there are, and in which state: equal when nothing was written."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What one results database told."""

    results: Results | None
    """None when its file was changed in place after these were read."""
    stats: CalibrationStats
    labels: tuple[FeatureLabel, ...]
    notes: tuple[str, ...]
    """What it lacks."""

    def still(self) -> Measured:
        """The same, without a database whose bytes are others by now."""
        return self if self.results is None or self.results.is_whole else replace(self, results=None)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Statistics and labels that fit, and what is missing."""

    results: Results | None
    stats: Stats | None
    labels: tuple[str, ...]
    """One text a feature, `feature_4521` where there is no label."""
    label_sources: dict[str, int]
    """How many labels came from which source."""
    verification: Verification | None
    """What `neuroscope verify` found about this very pair."""
    degraded: tuple[str, ...]
    """What is missing, why, and which command mends it."""
    named: tuple[FeatureLabel, ...] = ()
    """The labels with their sources, of the features that have one, in order of feature."""
    measured: Measured | None = None
    refused: str | None = None
    """Why the results database is not used, or not any more."""
    seen: Seen = ()
    """State of the files before they were read."""


def find_known(settings: Settings, used: Fingerprint, before: Known | None = None) -> Known:
    """What `settings.results` holds about the model, SAE and layer that `used` describes.

    What `before` has of a results database stays in use where the files there cannot be used now. Without `before`,
    raises ArtefactError for a stats file that the user named (`ranking.stats`) and that does not fit.
    """
    seen, said, refused, why = look(settings), [], None, f"The results hold none. {MEND}"
    try:
        measured: Measured | None = _measured(settings, used)
    except ArtefactError as error:
        refused = why = str(error)
        measured = None if before is None or before.measured is None else before.measured.still()
        if measured is not None:
            said.append(f"{refused} {STILL}")
    stats, notes = _stats_in_use(settings, used, measured, why, before)
    labels = () if measured is None else measured.labels
    if not labels:
        try:
            labels = tuple(imported_labels(settings, used.d_sae))
        except NeuroscopeError as error:
            why = str(error)
    if not labels:
        notes.append(f"Features are shown by number, there are no labels. {why}")
    verification, about_it = _verification(settings, used)
    texts = {row.feature: row.label for row in labels}
    degraded = [*said, *notes, *(measured.notes if measured is not None else ()), *about_it]
    return Known(
        results=None if measured is None else measured.results,
        stats=stats,
        labels=tuple(texts.get(index, f"feature_{index}") for index in range(used.d_sae)),
        label_sources=dict(Counter(row.source for row in labels)),
        verification=verification,
        degraded=tuple(with_pairing(sentence, settings.pairing.name) for sentence in degraded),
        named=labels,
        measured=measured,
        refused=None if refused is None else with_pairing(refused, settings.pairing.name),
        seen=seen,
    )


def look(settings: Settings) -> Seen:
    """The state of every file that `find_known` reads, without reading any."""
    names = (
        "results.duckdb",
        "results.duckdb.wal",
        "manifest.json",
        imported.LABELS,
        imported.PRIOR,
        VERIFICATION,
    )
    own = () if settings.ranking.stats is None else (Path(settings.ranking.stats),)
    return tuple(_state(path) for path in (*(settings.results / name for name in names), *own))


def _state(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def imported_labels(settings: Settings, d_sae: int) -> list[FeatureLabel]:
    """The labels that were imported from Neuronpedia, for where the results hold none; they have no score.

    Raises ArtefactError for a damaged file, or one about another pair.
    """
    found = imported.read_imported_labels(settings.results, settings.pairing.neuronpedia, d_sae)
    best = found.best(settings.labels.priority).labels
    return [FeatureLabel(label.feature, label.label, label.source, label.confidence, None) for label in best]


def _stats_in_use(
    settings: Settings, used: Fingerprint, measured: Measured | None, missing: str, before: Known | None
) -> tuple[Stats | None, list[str]]:
    """The user's own statistics, else the results', else Neuronpedia's rates; and what is to be said of them."""
    if settings.ranking.stats is not None:
        try:
            return _own_stats(Path(settings.ranking.stats), used), []
        except ArtefactError as error:
            if before is None:
                raise
            return before.stats, [f"{error} {STILL}"]
    if measured is not None:
        return measured.stats, []
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


def _measured(settings: Settings, used: Fingerprint) -> Measured:
    """Raises ArtefactError when there is no database, or none that can be used with `used`."""
    path = settings.results / "results.duckdb"
    results = open_results(path)
    try:
        if differences := results.fingerprint().mismatches(used):
            raise ArtefactError(
                f"{path.name} is about something else and not used ({'; '.join(differences)}). {MEND}"
            )
        labels = tuple(results.labels())
        stats, notes = _stats(results, settings)
        if stats.d_sae != used.d_sae:
            raise ArtefactError(
                f"{path} has statistics of {stats.d_sae:,} features, the SAE has {used.d_sae:,}. {made_anew()}"
            )
        if labels and settings.labels.score and all(row.balanced_accuracy is None for row in labels):
            notes.append(
                "No label in results.duckdb has a score: how far to trust them is unknown. "
                "Score them with: snakemake --cores 4 scores"
            )
        if not results.has_examples:
            notes.append(f"results.duckdb holds no examples: feature pages show none. {MEND}")
        return Measured(results, stats, labels, tuple(notes))
    except BaseException:
        results.close()
        raise


def _stats(results: Results, settings: Settings) -> tuple[CalibrationStats, list[str]]:
    """The statistics of the stratum in the settings, else those of all texts with a sentence that says so."""
    stratum = settings.ranking.stratum
    if stratum in results.strata():
        return results.stats(stratum), []
    note = f"The filter uses the statistics of all texts: there are none of the stratum {stratum!r}."
    return results.stats("all"), [] if settings.ranking.stats is not None else [note]


def _verification(settings: Settings, used: Fingerprint) -> tuple[Verification | None, list[str]]:
    """The report that fits, and what is to be said of it: nothing where none was made."""
    path = settings.results / VERIFICATION
    if not os.path.lexists(path):
        return None, []
    try:
        found = _fitting(path, settings, used)
    except ArtefactError as error:
        return None, [f"The verification is not used. {error}"]
    if not found.off:
        return found, []
    note = (
        f"Numbers are off: verification failed on {', '.join(found.off)}. See what and why: neuroscope verify"
    )
    return found, [note]


def fitting_verification(settings: Settings, used: Fingerprint) -> Verification | None:
    """The report about this model, in as many bits, and this SAE; None for one about others, or of another version."""
    try:
        return _fitting(settings.results / VERIFICATION, settings, used)
    except ArtefactError:
        return None


def _fitting(path: Path, settings: Settings, used: Fingerprint) -> Verification:
    found, about = read_verification(path)
    differences = about.mismatches(used)
    bits = "none" if found.quantization is None else found.quantization.quantization
    if bits != settings.arithmetic:
        differences.append(f"quantization: made with {bits}, in use is {settings.arithmetic}")
    if differences:
        raise ArtefactError(
            f"{path.name} is about something else ({'; '.join(differences)}). "
            "Make one that fits with: neuroscope verify"
        )
    return found


def _own_stats(path: Path, used: Fingerprint) -> CalibrationStats:
    stats = CalibrationStats.from_json(path)
    if stats.d_sae != used.d_sae:
        raise ArtefactError(f"{path} is about {stats.d_sae:,} features, the SAE in use has {used.d_sae:,}.")
    written = read_stats_document(path).get("fingerprint")
    remedy = "Make one with `neuroscope calibrate run`."
    if written and (
        differences := Fingerprint.from_dict(written, of=str(path), remedy=remedy).mismatches(used)
    ):
        raise ArtefactError(f"{path} is about something else: {'; '.join(differences)}.")
    return stats
