"""`neuroscope labels show`: a table of labels, or all that is known about some features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.feature_page import feature_lines, feature_record
from neuroscope.cli.flags import as_json, overrides, with_pairing
from neuroscope.cli.output import show
from neuroscope.cli.results import has_results, no_labels, open_own_results, shown_labels
from neuroscope.cli.terminal import columns_here, echo, has_colour
from neuroscope.errors import LabelError

if TYPE_CHECKING:
    from neuroscope.settings import Settings

LABELS_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("show")
@click.option("--features", metavar="I,J,...", help="All that is known about these features.")
@click.option("--search", metavar="TEXT", help="Only labels that contain TEXT.")
@click.option("--examples", type=click.IntRange(0), default=3, show_default=True, help="Examples a feature.")
@click.option("--labels", "path", type=LABELS_FILE, help="Labels of a file instead of the results: no more.")
@with_pairing
@as_json
def show_labels(
    features: str | None, search: str | None, examples: int, path: Path | None, as_json: bool, **flags: Any
) -> None:
    """Labels of all features that have one, or all that is known about some features.

    A feature is shown with its labels and their scores, how often and how strongly it fires on each kind of text,
    the tokens that it promotes and suppresses, and texts on which it fires most.
    """
    from neuroscope import settings

    wanted = _indices(features)
    settled = settings.load(overrides=overrides(flags))
    if path is None and wanted is not None and has_results(settled):
        _show_features(settled, wanted, search, examples, as_json=as_json)
        return
    rows = rows_of_results(settled, needed=True) if path is None else rows_of_file(path)
    if wanted is not None:
        if path is None:
            _check_range(wanted, settled.pairing.sae.width)
        by_feature = {row["feature"]: row for row in reversed(rows)}  # the first label of each
        rows = [by_feature.get(feature, _unlabelled(feature)) for feature in wanted]
    show(_matching(rows, search), as_json=as_json, empty="No feature matches.")


def _show_features(
    settings: Settings, wanted: list[int], search: str | None, examples: int, *, as_json: bool
) -> None:
    with open_own_results(settings) as results:
        _check_range(wanted, results.fingerprint().d_sae)
        states = results.label_states()
        found = [feature_record(results, feature, examples, states.get(feature)) for feature in wanted]
        records = _matching(found, search)
    if as_json or not records:
        show(records, as_json=as_json, empty="No feature matches.")
        return
    for place, record in enumerate(records):
        if place:
            echo("")
        for line in feature_lines(record, columns_here(), colour=has_colour()):
            echo(line)


def _check_range(wanted: list[int], width: int | None) -> None:
    """Raises LabelError for a feature that an SAE of this width has not."""
    if width is not None and (beyond := [feature for feature in wanted if feature >= width]):
        raise LabelError(f"There is no feature {beyond[0]}: this SAE has features 0 to {width - 1}.")


def _matching(rows: list[dict[str, Any]], search: str | None) -> list[dict[str, Any]]:
    return [row for row in rows if not search or search.lower() in row["label"].lower()]


def rows_of_results(settings: Settings, *, needed: bool = False) -> list[dict[str, Any]]:
    """The labels of `shown_labels`. Raises LabelError when labels are `needed` and there is none."""
    rows = shown_labels(settings)
    if needed and not rows:
        raise no_labels(settings.results / "results.duckdb", settings)
    return [row._asdict() for row in rows]


def rows_of_file(path: Path) -> list[dict[str, Any]]:
    """The labels of a file, in the columns of the results."""
    from neuroscope.label_export import read_scored

    return [
        {
            "feature": label.feature,
            "label": label.label,
            "source": label.source,
            "confidence": label.confidence,
            "balanced_accuracy": score,
        }
        for label, score in read_scored(path)
    ]


def _unlabelled(feature: int) -> dict[str, Any]:
    return {
        "feature": feature,
        "label": f"feature_{feature}",
        "source": None,
        "confidence": None,
        "balanced_accuracy": None,
    }


def _indices(text: str | None) -> list[int] | None:
    """The numbers of a list such as 4521,3022; one that is named twice is shown once."""
    if text is None:
        return None
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not a list of numbers such as 4521,3022", param_hint="--features"
        ) from error
    if not found:
        raise click.BadParameter("no feature is named, such as 4521,3022", param_hint="--features")
    if any(index < 0 for index in found):
        raise click.BadParameter("features are counted from 0", param_hint="--features")
    return list(dict.fromkeys(found))
