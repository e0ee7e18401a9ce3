"""The results of the pairing that a command is about, and nobody else's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscope.errors import ArtefactError, LabelError, SourceError

if TYPE_CHECKING:
    from neuroscope.settings import Pairing, Settings
    from neuroscope.store import FeatureLabel, Results

COMPARED = ("model", "layer", "d_sae", "sae")
"""What can be compared before a model or an SAE is loaded."""


def open_own_results(settings: Settings) -> Results:
    """The open results of the settings' pairing.

    Raises ArtefactError when they are missing, damaged, or about another model, SAE or layer.
    """
    from neuroscope import store
    from neuroscope.settings.commands import commands_name

    path = settings.results / "results.duckdb"
    with commands_name(settings.pairing.name):
        results = store.open_results(path)
    if differences := _differences(results, settings.pairing):
        results.close()
        raise ArtefactError(
            f"{path} is about something else ({'; '.join(differences)}). Give the flags it was made with, such as "
            "--model or --sae-path, as `neuroscope labels generate` got them."
        )
    return results


def has_results(settings: Settings) -> bool:
    """Whether the pipeline has left a database, be it whole or not."""
    return (settings.results / "results.duckdb").is_file()


def need_labels(results: Results, settings: Settings) -> None:
    """Raises LabelError when the results hold no label of any source, as after a calibration."""
    if not results.label_counts():
        raise no_labels(results.path, settings)


def no_labels(path: Path, settings: Settings) -> LabelError:
    """The error about results that hold none."""
    return LabelError(
        f"{path} holds statistics and no labels. Make them with "
        f"`neuroscope labels generate --pairing {settings.pairing.name}`."
    )


def shown_labels(settings: Settings) -> list[FeatureLabel]:
    """The label shown for each feature that has one: the results' own, else those imported from Neuronpedia.

    Raises ArtefactError as `open_own_results` does, unless there are imported labels and no results.
    """
    from neuroscope.known import imported_labels

    width = settings.pairing.sae.width
    if not has_results(settings) and width is not None and (imported := imported_labels(settings, width)):
        return imported
    with open_own_results(settings) as results:
        return results.labels() or imported_labels(settings, results.fingerprint().d_sae)


def _differences(results: Results, pairing: Pairing) -> list[str]:
    found = results.fingerprint()
    same_file = found.sae == pairing.sae.uri or _sha256_of(pairing.sae.uri) == found.sae_sha256
    used = replace(
        found,
        model=pairing.model,
        layer=pairing.layer,
        d_sae=found.d_sae if pairing.sae.width is None else pairing.sae.width,
        sae=found.sae if same_file else pairing.sae.uri,
    )
    return found.mismatches(used, keys=COMPARED)


def _sha256_of(uri: str) -> str | None:
    """Of an SAE that lies on this machine under another name than it had: a checkout may have been moved."""
    from neuroscope import sources

    with suppress(SourceError):
        source = sources.parse(uri)
        if source.kind == "path" and Path(source.name).exists():
            return sources.path_sha256(Path(source.name))
    return None
